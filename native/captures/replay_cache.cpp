// Replays: captured graphs of one sequence of operations, for several layouts of its inputs. A call finds a graph
// whose inputs are the current ones and whose results are no longer held, and replays it.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "interpreter/collected.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

using ops::Recorder;

namespace {

struct Result {
  PyRef value;  // of a result that is not an array: each replay returns it
  PyRef type;
  Array array;
  // References to the memory by the graph and by the results of this entry; more means that a caller holds an
  // earlier result. 0: the caller allowed its results to be overwritten.
  int64_t own_references = 0;
};

struct Input {
  PyRef type;
  Array array;
};

struct ReplayEntry {
  PyRef capture;  // a Recorder
  std::vector<Input> inputs;
  std::vector<Result> results;
  uint64_t last_use = 0;
};

bool same_memory(const Array& a, const Array& b) noexcept {
  const int n = a.layout.ndim();
  return a.data == b.data && a.dtype == b.dtype && a.device == b.device &&
         a.readonly == b.readonly && b.layout.has_shape(n, a.layout.shape()) &&
         std::equal(a.layout.strides(), a.layout.strides() + n, b.layout.strides());
}

// What a call returns of the results of a graph.
enum class Returned { All, First, None };

// All members need the GIL, which also guards the entries.
class Replays {
 public:
  // `cells` are lists of one element, which hold the inputs. `places`: for each input its place among the
  // arguments of a call, or -1 if it is always read from its cell.
  Replays(nb::list cells, nb::list places) : cells_(PyRef::borrow(cells.ptr())) {
    for (nb::handle place : places) {
      places_.push_back(nb::cast<Py_ssize_t>(place));
      arguments_ += places_.back() >= 0;
    }
    if (places_.size() != nb::len(cells)) throw nb::value_error("expected a place for each cell");
  }

  // Adds a graph for the arrays that are in the cells. False: another object refers to the memory of a result,
  // so it would be unknown whether a caller holds that memory.
  bool add(nb::object capture, nb::list results, nb::list overwritable, size_t limit) {
    ReplayEntry entry;
    entry.capture = PyRef::borrow(capture.ptr());
    const Recorder& recorder = nb::cast<Recorder&>(capture);
    for (size_t i = 0; i < nb::len(cells()); ++i) {
      const nb::handle o(value(i, nullptr) ? value(i, nullptr) : Py_None);
      entry.inputs.push_back({PyRef::borrow(reinterpret_cast<PyObject*>(Py_TYPE(o.ptr()))),
                              read_array(o, "Replays.add")});
    }
    for (nb::handle o : results) {
      Result result;
      if (is_array(o.ptr())) {
        result.type = PyRef::borrow(reinterpret_cast<PyObject*>(Py_TYPE(o.ptr())));
        result.array = read_array(o, "Replays.add");
      } else {
        result.value = PyRef::borrow(o.ptr());
      }
      entry.results.push_back(std::move(result));
    }
    // Now no object of the caller refers to the memory, and no result to the owner that it is a view of: the counts
    // below are those of the graph.
    results.clear();
    for (Result& r : entry.results)
      if (r.array.buffer && !r.array.buffer->needs_base) r.array.base = PyRef();
    for (size_t i = 0; i < entry.results.size(); ++i) {
      const Array& a = entry.results[i].array;
      if (!a.buffer || nb::cast<bool>(overwritable[i])) continue;
      int64_t own = recorder.references(a.buffer.get());
      for (const Result& r : entry.results) own += r.array.buffer.get() == a.buffer.get();
      if (a.buffer->refs.load() != own) return false;
      entry.results[i].own_references = own;
    }
    if (entries_.size() >= limit)
      entries_.erase(std::min_element(
          entries_.begin(), entries_.end(),
          [](const ReplayEntry& a, const ReplayEntry& b) { return a.last_use < b.last_use; }));
    entry.last_use = ++clock_;
    entries_.push_back(std::move(entry));
    return true;
  }

  // The results of a replay as new array objects, or null if no graph fits. `arguments`: a tuple, or null for
  // inputs from their cells alone.
  PyRef replay(PyObject* arguments, Returned returned) {
    if (arguments && PyTuple_Size(arguments) != arguments_) return {};
    for (ReplayEntry& entry : entries_) {
      if (!fits(entry, arguments) || is_held(entry)) continue;
      entry.last_use = ++clock_;
      const PyRef capture = entry.capture;  // a replay may run Python code that empties the list
      PyRef results = objects(entry.results, returned);
      ++hits_;
      nb::inst_ptr<Recorder>(nb::handle(capture.get()))->replay();
      return results;
    }
    return {};
  }

  // Makes this object a function of the arguments: it returns `returned` of the results, which is "all", "first" or
  // "none", and calls `fallback` if no graph fits.
  void set_fallback(nb::object fallback, const std::string& returned) {
    fallback_ = PyRef::borrow(fallback.ptr());
    returned_ = returned == "first"  ? Returned::First
                : returned == "none" ? Returned::None
                                     : Returned::All;
  }
  PyObject* call(PyObject* arguments, PyObject* keywords) {
    if (!keywords || !PyDict_Size(keywords))
      if (PyRef results = replay(arguments, returned_)) return results.release();
    const PyRef fallback = fallback_;
    return fallback ? PyObject_Call(fallback.get(), arguments, keywords) : Py_NewRef(Py_None);
  }

  // The number of graphs that were captured for the current inputs.
  size_t fitting() const {
    return static_cast<size_t>(std::count_if(
        entries_.begin(), entries_.end(), [&](const ReplayEntry& e) { return fits(e, nullptr); }));
  }

  // Drops the graphs for which the inputs at these places have changed, and with them the memory that they hold.
  void drop_others(nb::list places) {
    auto changed = [&](const ReplayEntry& entry) {
      for (nb::handle place : places) {
        const auto i = nb::cast<size_t>(place);
        if (!matches(entry, i, nullptr)) return true;
      }
      return false;
    };
    std::vector<ReplayEntry> dropped;  // destroyed last: it may run Python code
    auto kept = std::stable_partition(entries_.begin(), entries_.end(),
                                      [&](const ReplayEntry& e) { return !changed(e); });
    std::move(kept, entries_.end(), std::back_inserter(dropped));
    entries_.erase(kept, entries_.end());
  }

  size_t size() const noexcept { return entries_.size(); }
  uint64_t hits() const noexcept { return hits_; }  // replays so far

  int traverse(visitproc visit, void* arg) {
    Py_VISIT(cells_.get());
    Py_VISIT(fallback_.get());
    for (const ReplayEntry& e : entries_) {
      Py_VISIT(e.capture.get());
      for (const Input& input : e.inputs) {
        Py_VISIT(input.type.get());
        Py_VISIT(input.array.base.get());
      }
      for (const Result& r : e.results) {
        Py_VISIT(r.value.get());
        Py_VISIT(r.type.get());
        Py_VISIT(r.array.base.get());
      }
    }
    return 0;
  }
  // Drops all graphs, and the memory that they hold.
  void forget() {
    std::vector<ReplayEntry> dropped = std::move(entries_);
    entries_.clear();
  }
  void clear() {
    const PyRef fallback = std::move(fallback_);
    forget();
  }

 private:
  static PyRef object(const Result& r) {
    if (r.value) return r.value;
    return PyRef::steal(wrap(reinterpret_cast<PyTypeObject*>(r.type.get()), Array(r.array)));
  }
  static PyRef objects(const std::vector<Result>& results, Returned returned) {
    if (returned == Returned::First) return object(results[0]);
    if (returned == Returned::None) return PyRef::borrow(Py_None);
    PyRef list = PyRef::checked(PyList_New(static_cast<Py_ssize_t>(results.size())));
    for (size_t i = 0; i < results.size(); ++i)
      PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), object(results[i]).release());
    return list;
  }
  nb::list cells() const { return nb::borrow<nb::list>(cells_.get()); }

  PyObject* value(size_t i, PyObject* arguments) const noexcept {  // borrowed, an array or null
    PyObject* o = nullptr;
    if (arguments && places_[i] >= 0) {
      o = PyTuple_GetItem(arguments, places_[i]);
    } else {
      PyObject* cell = PyList_GetItem(cells_.get(), static_cast<Py_ssize_t>(i));
      o = cell && PyList_Check(cell) ? PyList_GetItem(cell, 0) : nullptr;
    }
    if (!o) PyErr_Clear();
    return o && is_array(o) ? o : nullptr;
  }
  bool matches(const ReplayEntry& entry, size_t i, PyObject* arguments) const {
    PyObject* o = value(i, arguments);
    return o && i < entry.inputs.size() && same_memory(unwrap(o), entry.inputs[i].array) &&
           reinterpret_cast<PyObject*>(Py_TYPE(o)) == entry.inputs[i].type.get();
  }
  bool fits(const ReplayEntry& entry, PyObject* arguments) const {
    for (size_t i = 0; i < entry.inputs.size(); ++i)
      if (!matches(entry, i, arguments)) return false;
    return true;
  }
  static bool is_held(const ReplayEntry& entry) noexcept {
    return std::any_of(entry.results.begin(), entry.results.end(), [](const Result& r) {
      return r.own_references && r.array.buffer->refs.load() > r.own_references;
    });
  }

  PyRef cells_, fallback_;
  Returned returned_ = Returned::All;
  std::vector<Py_ssize_t> places_;
  Py_ssize_t arguments_ = 0;
  std::vector<ReplayEntry> entries_;
  uint64_t clock_ = 0, hits_ = 0;
};

// A call with the arguments of a compiled function.
PyObject* replays_call(PyObject* self, PyObject* arguments, PyObject* keywords) {
  if (!nb::inst_ready(self)) Py_RETURN_NONE;
  return nb::inst_ptr<Replays>(self)->call(arguments, keywords);
}

}  // namespace

void register_replays(nb::module_& m) {
  const Collected<Replays> collected({Py_tp_call, slot(guarded<replays_call>)});
  nb::class_<Replays>(
      m, "Replays", nb::type_slots(collected.slots),
      "Captured graphs of one sequence of operations, found by the layouts of its inputs.")
      .def(nb::init<nb::list, nb::list>(), nb::arg("cells"), nb::arg("places"))
      .def("add", &Replays::add, nb::arg("capture"), nb::arg("results"), nb::arg("overwritable"),
           nb::arg("limit"))
      .def("replay",
           [](Replays& r) {
             PyRef results = r.replay(nullptr, Returned::All);
             return results ? nb::steal(results.release()) : nb::none();
           })
      .def("set_fallback", &Replays::set_fallback, nb::arg("fallback"), nb::arg("returned"))
      .def("forget", &Replays::forget)
      .def("drop_others", &Replays::drop_others, nb::arg("places"))
      .def_prop_ro("fitting", &Replays::fitting)
      .def_prop_ro("hits", &Replays::hits)
      .def("__len__", &Replays::size);
}

}  // namespace gpuinterop
