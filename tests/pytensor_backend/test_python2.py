"""Programs in Python 2: division, renamed modules, line numbers, and the exceptions of a program."""

import pickle
import re
import signal
import traceback
import types

import numpy as np
import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

from old_programs import process, run

from gpuinterop.theano.python2 import compiled


def values_of(text: str) -> dict:
    """The globals of a Python 2 program."""
    code, names = compiled(text, "old.py")
    exec(code, names)
    return names


@pytest.mark.parametrize(
    ("expression", "value"),
    [("7 / 2", 3), ("-7 / 2", -4), ("7 / 2.0", 3.5), ("7.0 / 2 / 2", 1.75), ("1 / (1 + 1)", 0), ("True / 2", 0),
     ("numpy.arange(4) / 2", [0, 0, 1, 1]), ("numpy.ones(2) / 2", [0.5, 0.5]), ("numpy.int64(7) / 2", 3),
     ("(lambda a: a / 2)(5)", 2), ("T.constant(7) / 2", 3), ("T.constant(7.0) / 2", 3.5),
     ("T.ones((5, 2)).shape[0] / 2", 2)],
)  # fmt: skip
def test_integers_are_divided_as_in_python_2(expression: str, value: object) -> None:
    text = f"import numpy\nimport pytensor.tensor as T\nprint ''\nx = {expression}\n"
    x = values_of(text)["x"]
    assert np.asarray(x.eval() if hasattr(x, "eval") else x).tolist() == value


def test_division_in_place_changes_the_array() -> None:
    names = values_of(
        "import numpy\nv = w = numpy.ones(2)\nv /= 2\nd = {1: [9]}\nd[1][0] /= 2\nprint ''\n"
    )
    assert names["w"].tolist() == [0.5, 0.5]
    assert names["d"] == {1: [4]}


def test_true_division_can_be_imported() -> None:
    text = "from __future__ import division, print_function\nx = 1 / 2\ny = 017\nprint(end='')\n"
    names = values_of(text)
    assert (names["x"], names["y"]) == (0.5, 15)


def test_lines_keep_their_numbers_when_a_translation_adds_and_removes_lines() -> None:
    text = "class A(object):\n    __metaclass__ = type\ndef f(a, (b, c)):\n    return b / c\nprint ''\nf(1, (2, 0))\n"
    with pytest.raises(ZeroDivisionError) as raised:
        values_of(text)
    lines = [
        frame.lineno for frame in traceback.extract_tb(raised.tb) if frame.filename == "old.py"
    ]
    assert lines == [6, 4]


def test_modules_have_their_old_names(tmp_path) -> None:
    data = tmp_path / "data.pkl"
    data.write_bytes(pickle.dumps([1, 2], protocol=2))
    script = tmp_path / "old.py"
    script.write_bytes(
        b"# -*- coding: latin-1 -*-\nimport cPickle, sys, urllib2\nfrom itertools import izip\n"
        b"print cPickle.load(open(sys.argv[0][:-6] + 'data.pkl', 'rb')), len('caf\xe9')\n"
    )
    assert run(script, device="cpu")[0] == "[1, 2] 4\n"


@pytest.mark.parametrize(
    ("statement", "error"),
    [("open('absent.txt')", "FileNotFoundError: "), ("raise ValueError, 'no'", "ValueError: no\n"),
     ("import absent", "ModuleNotFoundError: No module named 'absent'")],
)  # fmt: skip
def test_an_exception_shows_the_lines_of_the_program_only(script, statement, error) -> None:
    shown = rf'  File "[^"]*old\.py", line 3, in <module>\n    {statement[:4]}[^"]*{error}'
    message = rf"(?s)\ATraceback \(most recent call last\):\n{shown}"
    with pytest.raises(AssertionError, match=message):
        run(script(f"print 'one'\n\n{statement}\n"), device="cpu", print_active_device="False")


def test_an_error_of_an_array_shows_the_line_of_the_program(script) -> None:
    text = "import numpy, theano.sandbox.cuda as cuda\nprint ''\ncuda.CudaNdarray(numpy.zeros(3))\n"
    with pytest.raises(
        AssertionError, match=r'(?s)old\.py", line 3.*CudaNdarray: expected dtype float32'
    ):
        run(script(text), device="cpu")


@pytest.mark.parametrize(
    ("flags", "message"),
    [({"device": "tpu"}, "device=tpu: expected cpu"), ({"allow_gc": "maybe"}, "allow_gc=maybe: expected True or False"),
     ({"floatX": "float99"}, "Invalid value")],
)  # fmt: skip
def test_a_wrong_flag_is_one_line(script, flags, message) -> None:
    with pytest.raises(AssertionError, match=rf"(?m)\Agpuinterop run: {message}.*\n\Z"):
        run(script("import theano\nprint 1\n"), **{"device": "cpu", **flags})


def test_an_option_chooses_the_precision_of_products(script) -> None:
    text = "import gpuinterop\nprint(gpuinterop.set_product_precision('exact'))\n"
    assert run(script(text), device="cpu")[0] == "exact\n"
    assert run(script(text), "--product-precision", "tf32x3", device="cpu")[0] == "tf32x3\n"


def test_a_program_that_is_valid_python_3_can_be_run_as_python_2(tmp_path) -> None:
    script = tmp_path / "old.py"
    script.write_text("for i in xrange(7 / 2):\n    x = 1\n    print(i)\n")
    with pytest.raises(
        AssertionError, match=r"NameError: name 'xrange'(?s:.*) gpuinterop run --python2"
    ):
        run(script, device="cpu")
    assert run(script, "--python2", device="cpu")[0].split() == ["0", "1", "2"]
    script.write_text("print 1\nStringIO\n")  # translated already, but not imported
    with pytest.raises(AssertionError, match=r"name 'StringIO' is not defined") as caught:
        run(script, device="cpu")
    assert "--python2" not in str(caught.value)


@pytest.mark.parametrize("script", ["-", "/dev/stdin"])
def test_a_program_is_read_from_a_pipe(script) -> None:
    assert run(script, stdin="print 'one', 7 / 2\n", device="cpu")[0] == "one 3\n"
    with pytest.raises(AssertionError, match=r'stdin>?", line 2, in <module>\n    print 1 / 0\n'):
        run(script, stdin="print 'one'\nprint 1 / 0\n", device="cpu")


def test_an_interrupt_shows_the_lines_of_the_program_and_ends_it_by_the_signal(tmp_path) -> None:
    script = tmp_path / "old.py"
    script.write_text("import os, signal\nprint 'ready'\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = process(script, device="cpu")
    assert done.returncode == -signal.SIGINT
    shown = rf"Traceback .*\n  File \"{script}\", line 3, in <module>\n.*\n(    [\^~ ]*\n)?KeyboardInterrupt\n"
    assert re.fullmatch(shown, done.stderr)


def test_modules_beside_a_program_are_translated(tmp_path, monkeypatch) -> None:
    script = tmp_path / "old.py"
    script.write_text(
        "import helper, part.a, new\nprint helper.half(7), part.a.X, part.a.f(), new.x\n"
    )
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "new.py").write_text("x = 7 / 2\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    (tmp_path / "helper.py").write_text("def half(n):\n    return n / 2\n")  # valid Python 3
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "__init__.py").touch()
    (tmp_path / "part" / "a.py").write_text(
        "import b\nX = b.X\n\ndef f((a, c)=(1, 0)):\n    return a / c\n"
    )
    (tmp_path / "part" / "b.py").write_text("X = 017\n")
    with pytest.raises(AssertionError, match=r'a\.py", line 5, in f\n    return a / c\n'):
        run(script, device="cpu")
    (tmp_path / "part" / "a.py").write_text(
        "import b\nX = b.X\ndef f((a, c)=(1, 2)):\n    return a / c\n"
    )
    assert run(script, device="cpu")[0] == "3 15 0 3.5\n"


@pytest.mark.parametrize("statement", ["print", "print >>sys.stdout, 1"])
def test_a_print_statement_makes_a_program_python_2(script, statement) -> None:
    out, _ = run(script(f"import sys\n{statement}\nprint (7 / 2, 1)\n"), device="cpu")
    assert out.splitlines()[1:] == ["(3, 1)"]


def test_modules_of_a_program_in_python_3_are_translated_only_if_needed(tmp_path) -> None:
    script = tmp_path / "main.py"
    script.write_text("import old, new\nprint(old.x, new.x)\n")
    (tmp_path / "old.py").write_text("x = 7 / 2\nprint 'old'\n")
    (tmp_path / "new.py").write_text("x = 7 / 2\n")
    assert run(script, device="cpu")[0] == "old\n3 3.5\n"


def test_names_and_files_of_python_2(tmp_path) -> None:
    data = tmp_path / "data.pkl"
    data.write_bytes(
        b"\x80\x02U\x02\xe9a."
    )  # a string, by cPickle of Python 2; arrays have such bytes
    names = values_of(
        f"import cPickle\nf = file({str(data)!r}, 'rb')\ntext = cPickle.load(f)\nf.close()\n"
        "order = sorted([2, 3, 1], cmp=lambda a, b: cmp(b, a))\n"
        "d = {1: unicode(2)}\nfound = d.has_key(1), reduce(lambda a, b: a - b, xrange(4)), d.keys()[0]\nprint ''\n"
    )
    assert names["text"] == "\xe9a"
    assert values_of("import numpy as np\nkinds = np.float, np.int\nprint ''\n")["kinds"] == (
        float,
        int,
    )
    assert values_of("if 1:\n        x = 1\n\ty = 2\nprint ''\n")["y"] == 2
    assert (names["order"], names["found"]) == ([3, 2, 1], (True, -6, 1))


# Programs, and what Python 2.7 with NumPy 1.11 prints for them.
PROGRAMS = {
    "sort": ("""\
import numpy as np
a = np.array([[3, 1], [2, 5]])
print np.sort(a, axis=0).tolist(), np.sort(a, 0, 'mergesort').tolist(), np.sort(a, axis=1).tolist()
for axis in (0, -1):
    a.sort(axis)
    print a.tolist()
x = [3, 1, 2]
x.sort(lambda p, q: cmp(q, p)); print x
x.sort(None, lambda v: -v, True); print x
x.sort(cmp=lambda p, q: cmp(q, p), key=lambda v: v % 3); print x
print sorted('bca', reverse=True), sorted(x, lambda p, q: cmp(q, p), None, True), sorted(x, None, lambda v: -v)
""", """\
[[2, 1], [3, 5]] [[2, 1], [3, 5]] [[1, 3], [2, 5]]
[[2, 1], [3, 5]]
[[1, 2], [3, 5]]
[3, 2, 1]
[1, 2, 3]
[2, 1, 3]
['c', 'b', 'a'] [1, 2, 3] [3, 2, 1]
"""),
    "lists": ("""\
print map(None, [1, 2], 'abc'), map(None, 'ab'), map(lambda a, b: (a, b), [1], [2, 3]), map(str, xrange(3))[1]
print filter(None, [0, 1, 2]), filter(lambda c: c > 'a', 'abc'), filter(None, (0, 1)), zip([1, 2], 'ab')[1]
f = map
print range(3) + [9], f(None, 'ab', 'c'), callable(raw_input)
""", """\
[(1, 'a'), (2, 'b'), (None, 'c')] ['a', 'b'] [(1, 2), (None, 3)] 1
[1, 2] bc (1,) (2, 'b')
[0, 1, 2, 9] [('a', 'c'), ('b', None)] True
"""),
    "iterators": ("""\
from itertools import izip, imap, count, ifilter, izip_longest
import itertools
print list(izip(count(), 'ab')), imap(lambda v: v * v, count()).next(), list(itertools.ifilterfalse(None, [0, 1]))
print list(itertools.islice(ifilter(None, count()), 2)), list(izip_longest('a', 'bc'))
""", """\
[(0, 'a'), (1, 'b')] 0 [0]
[1, 2] [('a', 'b'), (None, 'c')]
"""),
    "functions": ("""\
import types
print apply(max, (1, 2)), reduce(lambda p, q: p * 2 + q, [1, 1, 1]), intern('a'), unichr(65) == u'A', cmp(2, 1)
print round(2.5), round(-0.5), round(0.125, 2), round(1234.5, -2), round(2.675, 2), round(7), round(1e300, -299)
with open('/dev/null') as f:
    print len(buffer('abcdef', 2, 3)), isinstance(f, file), isinstance('s', basestring), unicode(2)
print isinstance('a', types.StringType), isinstance(u'a', types.StringTypes), types.ListType is list, long('7')
try:
    raise StandardError, 'old'
except StandardError, e:
    print e
""", """\
2 7 a True 1
3.0 -1.0 0.13 1200.0 2.67 7.0 1e+300
3 True True 2
True True True 7
old
"""),
    "names of the program": ("""\
def apply(f, x): return f + x
class C(object):
    def sort(self, axis, order='x'): return axis, order
    def map(self, f): return f
def f(input, filter=None, map=lambda v: v, long=3): return input(1), filter, map(5), long
print apply(1, 2), C().sort(1), C().sort(axis=2, order='y'), C().map(3), f(lambda v: v + 1, filter=2)
""", "3 (1, 'x') (2, 'y') 3 (2, 2, 5, 3)\n"),
    "division in place": ("""\
import numpy as np
def index(): print 'once',; return 0
d, m = [7.0, 7], np.arange(6).reshape(2, 3)
d[index()] /= 2
d[1] /= 2
m[:, 1:] /= 2
print d, m.tolist()
""", "once [3.5, 3] [[0, 0, 1], [3, 2, 2]]\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_what_it_printed_in_python_2(name, capsys) -> None:
    text, printed = PROGRAMS[name]
    values_of(text)
    assert capsys.readouterr().out == printed


def test_the_module_types_keeps_its_names() -> None:
    """Numba's cache, which other processes read, names classes by the names that they have in this module."""
    values_of("import types\nprint types.StringType\n")
    assert not hasattr(types, "ObjectType")
    assert not hasattr(types, "StringType")


def test_sort_of_a_module_takes_an_axis() -> None:
    names = values_of(
        "import pytensor.tensor as T\nx = T.constant([[2, 1], [0, 3]])\nprint ''\n"
        "y, axis = T.sort(x, axis=0).eval(), 0\nz = T.sort(x, axis).eval(), T.sort(x).eval()\n"
    )
    assert names["y"].tolist() == names["z"][0].tolist() == [[0, 1], [2, 3]]
    assert names["z"][1].tolist() == [[1, 2], [0, 3]]


def test_input_is_evaluated_in_the_variables_of_its_caller(script) -> None:
    text = "def f(n):\n    return input()\nprint f(7), raw_input()\n"
    assert run(script(text), stdin="n + 1\nline\n", device="cpu")[0] == "8 line\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [("print ''\ndef f(a,\n      (b, c)):\n    x = {}.has_key(1)\n    from os import *\n", 5),
     ("raise E, 'a', tb\nprint\nx.sort(\n  lambda a, b: 1)\nf(await=1)\n", 5),
     ("print '''a\nb'''\nprint\ntry: pass\nexcept (A, B), e: pass\nNone = 3\n", 6)],
)  # fmt: skip
def test_a_program_that_python_3_refuses_is_a_syntax_error_with_its_line(text, line) -> None:
    with pytest.raises(SyntaxError) as raised:
        values_of(text)
    assert (raised.value.filename, raised.value.lineno) == ("old.py", line)


def test_classes_have_the_special_methods_of_python_2() -> None:
    names = values_of(
        "class N(object):\n    def __init__(self, v): self.v = v\n    def __div__(self, n): return self.v / n\n"
        "    def __rdiv__(self, n): return n / self.v\n    def __idiv__(self, n): return N(self.v / n)\n"
        "    def __cmp__(self, other): return cmp(self.v, other.v)\n    def __nonzero__(self): return self.v > 7\n"
        "a, b = N(7), N(2)\nx = a / 2, 15 / a, a > b, a <= b, a == N(7), a != b, max(b, a).v, bool(a)\na /= 3\n"
        "print ''\n"
    )
    assert names["x"] == (3, 2, True, False, True, True, 7, False)
    assert names["a"].v == 2


def test_files_of_pickle_and_csv_have_the_other_mode(tmp_path) -> None:
    names = values_of(
        f"import cPickle, csv\nfrom cPickle import load\nname = {str(tmp_path / 'file')!r}\n"
        "with open(name, 'w') as f: cPickle.dump([1], f, -1)\n"
        "with open(name) as f, open(name, 'rb') as g: x = load(f), cPickle.load(g)\n"
        "with open(name, 'wb') as f: csv.writer(f).writerow(['a', 1])\n"
        "with open(name) as f, open(name, 'rb') as g: x += list(csv.reader(f)), list(csv.reader(g))\nprint ''\n"
    )
    assert names["x"] == ([1], [1], [["a", "1"]], [["a", "1"]])


def test_names_that_numpy_has_dropped_remain_in_both_languages() -> None:
    text = "import numpy as np\nx = np.cast['float32'](1).dtype, np.asscalar(np.ones(1)), np.product([2, 3]), np.NaN\n"
    for program in (text, f"{text}print ''\n"):
        x = values_of(program)["x"]
        assert x[:3] == (np.float32, 1, 6)
        assert np.isnan(x[3])


def test_functions_of_the_module_string() -> None:
    names = values_of(
        "import string\nfrom string import split, letters\n"
        "x = string.join(split('a,b', ','), '-'), string.join(['a', 'b']), string.upper('a'), string.atoi('7') / 2\n"
        "y = letters[:3], string.replace('aa', 'a', 'b', 1)\nprint ''\n"
    )
    assert names["x"] == ("a-b", "a b", "A", 3)
    assert names["y"] == ("abc", "ba")
    assert values_of("import time\nx = time.clock()\nprint ''\n")["x"] > 0


def test_a_file_is_executed_in_python_2(tmp_path) -> None:
    part = tmp_path / "part.py"
    part.write_text("half = whole / 2\nprint ''\n")
    names = values_of(
        f"whole, given = 7, {{'whole': 9}}\nexecfile({str(part)!r})\nexecfile({str(part)!r}, given)\nprint ''\n"
    )
    assert (names["half"], names["given"]["half"]) == (3, 4)
    part.write_text("x = 1\n1 / 0\n")
    with pytest.raises(ZeroDivisionError) as raised:
        values_of(f"print ''\nexecfile({str(part)!r})\n")
    lines = [(f.filename, f.lineno) for f in traceback.extract_tb(raised.tb)]
    assert ("old.py", 2) in lines
    assert (str(part), 2) in lines
