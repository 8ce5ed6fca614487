"""Array dictionaries whose entries are wrong (49 to 55)."""

from __future__ import annotations

from malformed_table import BOTH, case, take
from peers import ADDRESS, interface

# ---- 49 to 55: dictionaries ------------------------------------------------------------------------

CAI, HOST = "__cuda_array_interface__", "__array_interface__"
WRONG = {
    **{f"data {data!r}": {"data": data} for data in ((8,), (None, False), ("8", False))},
    "typestr 4": {"typestr": 4},
}
for name, fields in WRONG.items():
    case(f"49 {CAI} {name}", TypeError, CAI)(lambda fields=fields: take(interface(CAI, **fields)))
    # NumPy reads this one, and words the reason.
    case(f"49 {HOST} {name}", BufferError, HOST)(
        lambda fields=fields: take(interface(HOST, **fields))
    )
for name, fields in {
    "data as an int": {"data": ADDRESS},
    "version None": {"version": None},
    "version 4": {"version": 4, "future": 1},
    "version -1": {"version": -1},
    "a mask": {"mask": interface()},
    "stream 0": {"stream": 0},
    "a text as stream": {"stream": "1"},
}.items():
    case(f"51 {CAI} {name}", TypeError, CAI)(lambda fields=fields: take(interface(CAI, **fields)))
for key in ("shape", "typestr", "version", "data"):
    case(f"49 {CAI} without {key}", TypeError, CAI)(
        lambda key=key: take(interface(CAI, drop=[key]))
    )
for name, fields in {
    "without shape": {"drop": ["shape"]},
    "too few strides": {"strides": (4,)},
    "a negative extent": {"shape": (-2, 3)},
    "extents of 2**70": {"shape": (2**70, 3)},
    "typestr '<x4'": {"typestr": "<x4"},
}.items():
    case(f"53 {HOST} {name}", BufferError, HOST)(
        lambda fields=fields: take(interface(HOST, **fields))
    )
case("50 an address outside the address space", BufferError, "address space")(
    lambda: take(interface(HOST, data=(-8, False)))
)
for door, error in ((CAI, TypeError), (HOST, BufferError)):
    case(f"49 {door} that is no dictionary", error, door)(
        lambda door=door: take(type("Odd", (), {door: 3})())
    )


class Grudging:
    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")


case("55 an attribute that raises", BOTH, "requires grad")(lambda: take(Grudging()))
