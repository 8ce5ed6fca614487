// Context managers. Python raises interrupts between instructions of Python code, never inside these functions. So
// a state that functions of C change is changed and restored as a whole. Functions of Python, such as those that set
// the current stream of another library, can be interrupted midway: then the state is restored, and restoring is
// repeated.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "arrays/array.hpp"
#include "devices/cuda.hpp"
#include "interpreter/collected.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/register.hpp"
#include "product/product.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

using Failure = std::optional<nb::python_error>;  // the first of several

bool is_interrupt(const nb::python_error& e) { return !e.matches(PyExc_Exception); }

// None: nothing to do.
void call(nb::handle function) {
  if (!function.is_none() && !PyRef::steal(PyObject_CallNoArgs(function.ptr())))
    throw nb::python_error();
}

// Restores the first `count` changes, the last one first; `failed`: the block raised.
void restore(nb::handle changes, size_t count, bool failed, Failure& first) {
  while (count-- > 0) {
    const nb::tuple change = nb::borrow<nb::tuple>(changes[count]);
    const nb::object function = change[failed && change.size() > 2 ? 2 : 1];
    for (int tries = 0; tries < 2; ++tries) {
      try {
        call(function);
        break;
      } catch (nb::python_error& error) {
        if (!is_interrupt(error)) tries = 2;
        if (first)
          error.discard_as_unraisable(function);
        else
          first.emplace(std::move(error));
      }
    }
  }
}

void raise(Failure& first) {
  if (!first) return;
  first->restore();
  throw PythonError();
}

void apply(nb::handle changes) {
  for (size_t i = 0, n = nb::len(changes); i < n; ++i) {
    Failure first;
    try {
      call(changes[i][0]);
      continue;
    } catch (nb::python_error& error) {
      first.emplace(std::move(error));
    }
    // A function that raised any other error has changed nothing.
    restore(changes, i + is_interrupt(*first), true, first);
    raise(first);
  }
}

struct Block {
  nb::object changes;    // a tuple of (apply, restore), or (apply, restore, restore after an error)
  nb::object result;     // what `with` binds; null: the block itself
  nb::object per_entry;  // () -> further changes, for each entry anew; or null
  // The further changes of the entries, with their threads: one object may be entered several times.
  std::vector<std::pair<uint32_t, nb::object>> entered = {};

  nb::object enter(nb::handle self) {
    const nb::object further = per_entry ? nb::object(nb::tuple(per_entry())) : nb::object();
    apply(changes);
    if (per_entry) {
      entered.emplace_back(cuda::thread_token(), nb::make_tuple());
      try {
        apply(further);
      } catch (const PythonError&) {
        Failure first(std::in_place);
        leave(true, first);
        raise(first);
      }
      entered.back().second = further;
    }
    return result ? result : nb::borrow(self);
  }

  void leave(bool failed, Failure& first) {
    const auto found = std::find_if(entered.rbegin(), entered.rend(), [](const auto& entry) {
      return entry.first == cuda::thread_token();
    });
    if (found != entered.rend()) {
      const nb::object further = std::move(found->second);
      entered.erase(std::next(found).base());
      restore(further, nb::len(further), failed, first);
    }
    restore(changes, nb::len(changes), failed, first);
  }

  int traverse(visitproc visit, void* arg) const {
    for (const nb::object* o : {&changes, &result, &per_entry}) Py_VISIT(o->ptr());
    for (const auto& entry : entered) Py_VISIT(entry.second.ptr());
    return 0;
  }
  void clear() {
    for (nb::object* o : {&changes, &result, &per_entry}) nb::object(std::move(*o));
    decltype(entered)().swap(entered);
  }
};

// ---- states of blocks ----------------------------------------------------------------------------

struct CopyScope {
  uint32_t thread;  // that entered it; another one may leave it
  PyRef record;
};
std::vector<CopyScope> copy_scopes;  // guarded by the GIL; `watching` is their number

void leave_copies(nb::handle record) {
  const auto found =
      std::find_if(copy_scopes.rbegin(), copy_scopes.rend(),
                   [&](const CopyScope& s) { return s.record.get() == record.ptr(); });
  if (found == copy_scopes.rend()) return;
  const CopyScope dropped = std::move(*found);
  copy_scopes.erase(std::next(found).base());
  --watching;
}

void register_states(nb::module_& m) {
  m.def(
      "_enter_copies",
      [](nb::handle record) {
        copy_scopes.push_back({cuda::thread_token(), PyRef::borrow(record.ptr())});
        ++watching;
      },
      nb::arg("record"), "Add a record to the copy scopes of this thread.");
  m.def("_leave_copies", &leave_copies, nb::arg("record"), "Remove a record, of any thread.");
  m.def(
      "_copy_scopes",
      [] {
        nb::list records;
        for (const CopyScope& s : copy_scopes)
          if (s.thread == cuda::thread_token()) records.append(nb::handle(s.record.get()));
        return records;
      },
      "Return the records of this thread, innermost last.");
  m.def(
      "_push",
      [](nb::handle variable, nb::handle item) {
        variable.attr("set")(variable.attr("get")() + nb::make_tuple(item));
      },
      nb::arg("variable"), nb::arg("item"), "Add an item to the tuple of a ContextVar.");
  m.def(
      "_pop",
      [](nb::handle variable) {
        const nb::object items = variable.attr("get")();
        variable.attr("set")(items[nb::slice(0, -1)]);
      },
      nb::arg("variable"), "Remove the last item.");
}

}  // namespace

void register_blocks(nb::module_& m) {
  const Collected<Block> collected;
  nb::class_<Block>(m, "Block", nb::type_slots(collected.slots),
                    "A context manager that an interrupt leaves entered or left, never between.")
      .def(
          "__init__",
          [](Block* self, nb::args changes, nb::kwargs options) {
            new (self) Block{changes, {}, {}};
            if (options.contains("result")) self->result = options["result"];
            if (options.contains("per_entry")) self->per_entry = options["per_entry"];
          },
          nb::sig("def __init__(self, *changes: tuple[Callable[[], object] | None, ...], result: "
                  "object = "
                  "..., per_entry: "
                  "Callable[[], Sequence[tuple[Callable[[], object], ...]]] = ...) -> None"))
      .def(
          "__enter__", [](nb::handle self) { return nb::cast<Block&>(self).enter(self); },
          nb::sig("def __enter__(self) -> Any"))
      .def(
          "__exit__",
          [](Block& self, nb::args error) {
            Failure first;
            self.leave(error.size() && !error[0].is_none(), first);
            raise(first);
          },
          nb::sig("def __exit__(self, *args: object) -> None"));
  register_states(m);
}

}  // namespace gpuinterop
