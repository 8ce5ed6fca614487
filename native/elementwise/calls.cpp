#include "elementwise/calls.hpp"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "captures/recorder.hpp"
#include "elementwise/call_cache.hpp"
#include "elementwise/host_program.hpp"
#include "elementwise/operands.hpp"
#include "elementwise/overlap.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/text_arguments.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

struct Resolution : Prepared {
  std::vector<DTypeId> inputs;   // the dtypes to which numbers are converted; arrays keep their own
  std::vector<DTypeId> results;  // dtypes of new results
  // Borrowed: the class of an operand, with which the entry is removed, or one of the package's two.
  std::vector<PyTypeObject*> result_types;
  // The program that computes the operation in host memory, compiled by the first call there.
  mutable std::shared_ptr<const HostProgram> host;
};

// An `out` array as it was when it was checked; see Input::array.
using Outs = const MaybeArray*;

// Never destroyed. References to entries stay valid when others are added.
auto& table = *[] {
  auto* const infos = new std::deque<OpInfo>;
  for (const char* name : kOutsideTable) infos->push_back({name, 1, 1});
  return infos;
}();
auto& ids_by_name = *new std::unordered_map<std::string, OpId>;
auto& ids_by_ufunc = *new std::unordered_map<PyObject*, OpId>;

std::shared_ptr<const Resolution> types_from_python(OpId op, const OpInfo& info, const Input* in,
                                                    Outs outs) {
  nb::list codes, classes, out_ids;
  for (int i = 0; i < info.inputs; ++i) {
    codes.append(in[i].code);
    if (in[i].array)
      classes.append(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(in[i].object))));
    else
      classes.append(nb::none());
  }
  for (int j = 0; j < info.results; ++j)
    out_ids.append(outs[j] ? static_cast<int>(outs[j]->dtype) : -1);
  const nb::object answer = prepare_in_python("types", {{"op", op},
                                                        {"codes", nb::tuple(codes)},
                                                        {"classes", nb::tuple(classes)},
                                                        {"out_ids", nb::tuple(out_ids)}});
  auto resolution = std::make_shared<Resolution>();
  for (nb::handle type_id : answer[0]) resolution->inputs.push_back(nb::cast<DTypeId>(type_id));
  for (nb::handle type_id : answer[1]) resolution->results.push_back(nb::cast<DTypeId>(type_id));
  for (nb::handle type : answer[2])
    resolution->result_types.push_back(reinterpret_cast<PyTypeObject*>(type.ptr()));
  return resolution;
}

std::shared_ptr<const Resolution> resolve(OpId op, const OpInfo& info, const Input* in, Outs outs) {
  auto write_key = [&](CallKey& key) {
    key.begin(Subject::Operation, op);
    for (int i = 0; i < info.inputs; ++i) {
      key.put(static_cast<int8_t>(in[i].code));
      if (in[i].array) key.put_class(Py_TYPE(in[i].object));
    }
    for (int j = 0; j < info.results; ++j)
      key.put(outs[j] ? static_cast<int8_t>(outs[j]->dtype) : int8_t{-1});
  };
  return find_or_prepare<Resolution>(
      write_key, [&] { return types_from_python(op, info, in, outs); }, info.name.c_str());
}

void broadcast(Shape& s, const Layout& l, const char* where) {
  const int n = l.ndim();
  if (s.ndim == 0) {
    std::copy_n(l.shape(), s.ndim = n, s.extents);
    return;
  }
  if (s.is_of(l)) return;
  int64_t out[kMaxDims];
  s.ndim = broadcast_shapes(s.ndim, s.extents, n, l.shape(), out, where);
  std::memcpy(s.extents, out, sizeof(int64_t) * static_cast<size_t>(s.ndim));
}

// Whether the operands, whose broadcast shape this is, broadcast to the shape of an `out` array.
bool broadcasts_to(const Shape& s, const Layout& out) {
  const int n = out.ndim();
  if (n < s.ndim) return false;
  for (int i = 1; i <= s.ndim; ++i)
    if (s.extents[s.ndim - i] != 1 && s.extents[s.ndim - i] != out.shape()[n - i]) return false;
  return true;
}

// The layout of new results: that of NumPy's for order="K", where `out` arrays count as operands.
Layout layout_of_results(const OpInfo& info, const Input* in, Outs outs, const Shape& shape,
                         bool c_order, const char* where) {
  const Layout* layouts[kMaxOperands];
  int count = 0;
  for (int i = 0; i < info.inputs && !c_order; ++i)
    if (in[i].array) layouts[count++] = &in[i].array->layout;
  for (int j = 0; j < info.results && !c_order; ++j)
    if (outs[j]) layouts[count++] = &outs[j]->layout;
  return Layout::in_memory_order(shape.ndim, shape.extents, layouts, count, where);
}

[[noreturn]] void refuse_out(const Shape& s, const Layout& out, const char* where) {
  fail_with("out_shape_differs", where, {s.text(), shape_text(out.ndim(), out.shape())});
}

// The inputs that an `out` array overlaps, as bits: a kernel reads a copy of each. Each copy is reported, and
// may be forbidden, before the operation starts. In host memory new results are copied to the `out` arrays, because
// copies of the operands would need more memory than NumPy's temporaries.
uint32_t report_copies(const OpInfo& info, const Input* in, Outs outs) {
  static_assert(kMaxOperands <= 32);
  const char* where = info.name.c_str();
  uint32_t apart = 0;
  for (int i = 0; i < info.inputs; ++i) {
    if (!in[i].array) continue;
    const Array& a = *in[i].array;
    for (int j = 0; j < info.results; ++j) {
      if (!outs[j] || outs[j]->device != a.device || !must_go_apart(a, *outs[j], where)) continue;
      apart |= uint32_t{1} << i;
      if (a.device.is_cuda()) note_copy("copy", a.nbytes(), where);
      break;
    }
  }
  for (int j = 0; j < info.results && apart; ++j)
    if (outs[j] && !outs[j]->device.is_cuda()) note_copy("host", outs[j]->nbytes(), where);
  return apart;
}

// For `out` arrays that overlap operands in host memory: computes new results, and copies them.
void copy_new_results(OpId op, const OpInfo& info, const Input* in, Outs outs, PyRef* results) {
  FewValues<PyObject*, 3> args(info.inputs);
  for (int i = 0; i < info.inputs; ++i) args[i] = in[i].object;
  const PyRef values = PyRef::steal(call(op, args.get(), nullptr, false, false));
  const Uncounted reported(true);
  for (int j = 0; j < info.results; ++j) {
    PyObject* one = info.results > 1 ? PyTuple_GetItem(values.get(), j) : values.get();
    if (!outs[j]) {
      results[j] = PyRef::borrow(one);
      continue;
    }
    Array spread = unwrap(one);
    const Layout& out = outs[j]->layout;
    spread.layout = spread.layout.broadcast_to(out.ndim(), out.shape(), info.name.c_str());
    copy_elements(*outs[j], spread, info.name.c_str());
  }
}

// Range errors are the same on both devices, and for empty operands too.
void require_range(const OpInfo& info, const Input* in, const Resolution& r) {
  for (int i = 0; i < info.inputs; ++i)
    if (!in[i].array && in[i].code == kWeakInt) (void)encode(in[i].object, r.inputs[i], info);
}

void compile_program(OpId op, const OpInfo& info, const Input* in, const Resolution& r,
                     const Array* const* out, bool in_place) {
  nb::list codes, stored, results;
  for (int i = 0; i < info.inputs; ++i) {
    codes.append(in[i].code);
    stored.append(int{in[i].array ? in[i].array->dtype : r.inputs[static_cast<size_t>(i)]});
  }
  for (int j = 0; j < info.results; ++j) results.append(int{out[j]->dtype});
  const nb::object compiled = prepare_in_python("host program", {{"op", op},
                                                                 {"codes", nb::tuple(codes)},
                                                                 {"stored", nb::tuple(stored)},
                                                                 {"results", nb::tuple(results)},
                                                                 {"in_place", in_place}});
  // While Python ran, another thread may have compiled it, and may now run it without the GIL.
  if (!r.host) r.host = read_program(compiled.ptr());
}

// `apart`: on CUDA, the inputs to copy first, because an `out` array overlaps them.
void run(OpId op, const OpInfo& info, const Input* in, const Resolution& r, const Shape& shape,
         const Array* const* out, Outs outs, uint32_t apart) {
  const char* where = info.name.c_str();
  const Device device = out[0]->device;
  const bool cuda = device.is_cuda(), records = !cuda && recording_on_host();
  if (!cuda) {
    const bool in_place =
        std::any_of(outs, outs + info.results, [](const auto& a) { return bool(a); });
    if (!r.host) compile_program(op, info, in, r, out, in_place);
    require_recorded({});
  }
  std::optional<HostWork> work;  // for a capture only, because each call would pay for it
  if (records) [[unlikely]]
    work.emplace();
  std::vector<Array> copies;
  if (apart) copies.reserve(static_cast<size_t>(info.inputs));  // `w` refers to their layouts
  IterationSpace w;
  w.inputs = info.inputs;
  for (int i = 0; i < info.inputs; ++i) {
    if (!in[i].array) {
      require_exponent(in[i], i, r.inputs[i], info);
      w.add_constant(encode(in[i].object, r.inputs[i], info), r.inputs[i]);
      continue;
    }
    const Array* a = &*in[i].array;
    if (cuda)
      note_use(*a);
    else
      require_set(where, *a);
    if (apart >> i & 1) {
      copies.push_back(empty_like(*a, device, where));
      copy_unreported(copies.back(), *a, where);
      a = &copies.back();
    }
    if (records) work->inputs.push_back(*a);
    w.add_array(*a);
  }
  for (int j = 0; j < info.results; ++j) {
    w.add_array(*out[j]);
    if (records)
      work->outs.push_back(*out[j]);
    else if (!cuda)
      note_write(*out[j]);
    else if (outs[j])
      note_use(*out[j]);
    else
      note_fresh(*out[j]);
  }
  build_iteration_space(w, shape.ndim, shape.extents);
  if (cuda) return launch(op, w, device.id, where);
  if (!records) return run_program(*r.host, w, where);
  if (r.host->calls_python)  // the program does not keep a user's functions
    work->object = PyRef::steal(prepare_in_python("operation", {{"op", op}}).release().ptr());
  work->where = info.name;
  work->compute = [program = r.host, w](const HostWork& call) {
    run_program(*program, w, call.where.c_str());
  };
  recorder->add(std::move(*work));
}

// An operand or a result has a class that only Python can read.
PyObject* call_python(OpId op, const OpInfo& info, PyObject* const* args, PyObject* const* outs) {
  nb::list operands;
  for (int i = 0; i < info.inputs; ++i) operands.append(nb::handle(args[i]));
  nb::dict keywords;
  for (int j = 0; outs && j < info.results; ++j)
    if (outs[j]) keywords["out"] = nb::handle(outs[j]);
  return call_hook(Hook::Call, "(iNN)", int(op), nb::tuple(operands).release().ptr(),
                   keywords.release().ptr())
      .release();
}

// Makes a number a 0-d array on the default device, of the class that the hook chooses.
void read_scalar_as_array(Input& in, const char* where) {
  in.keep = call_hook(Hook::Foreign, "(sOOs)", "operand", in.object, Py_None, where);
  if (!is_array(in.keep.get()))
    fail(Kind::ConversionType, where, "an array among the operands", type_text(in.object),
         "pass gpuinterop.asarray(value)");
  in.set(in.keep.get());
}

// Operands broadcast to the shape of an `out` array, as in NumPy; an `out` array is never broadcast.
Shape broadcast_shape(const OpInfo& info, const Input* in, Outs outs, Device device) {
  const char* where = info.name.c_str();
  Shape shape;
  for (int i = 0; i < info.inputs; ++i) {
    if (!in[i].array) continue;
    require_device(device, *in[i].array, where);
    broadcast(shape, in[i].array->layout, where);
  }
  for (int j = 0; j < info.results; ++j) {
    if (!outs[j]) continue;
    const Layout& out = outs[j]->layout;
    if (!broadcasts_to(shape, out)) refuse_out(shape, out, where);
    broadcast(shape, out, where);
  }
  return shape;
}

// Reads the arrays given as out=; the first is what results are like when no input is an array.
void read_outs(const OpInfo& info, PyObject* const* outs, MaybeArray* found, PyObject*& like) {
  const char* where = info.name.c_str();
  for (int j = 0; j < info.results; ++j) {
    if (!outs[j]) continue;
    found[j] = read_out(outs[j], where);
    require_writable(*found[j], where);
    if (!like) like = outs[j];
  }
}

}  // namespace

OpId add_op(OpInfo info) {
  const OpId id = static_cast<OpId>(table.size());
  // emplace keeps an existing entry: operations of the table, added first, keep their names.
  ids_by_name.emplace(info.name, id);
  if (info.ufunc) ids_by_ufunc.emplace(info.ufunc.get(), id);
  table.push_back(std::move(info));
  return id;
}
void drop_op(OpId op) {
  auto named = ids_by_name.find(table[op].name);
  if (named != ids_by_name.end() && named->second == op) ids_by_name.erase(named);
  table[op] = {};  // ids are not reused
  for (const Subject subject : {Subject::Operation, Subject::Kernel}) forget_calls(subject, op);
}
const OpInfo& op_info(OpId op) { return table[op]; }

int op_by_ufunc(PyObject* ufunc) {
  const auto found = ids_by_ufunc.find(ufunc);
  return found == ids_by_ufunc.end() ? -1 : found->second;
}

int find_op(const char* name) {
  const auto found = ids_by_name.find(name);
  return found == ids_by_name.end() ? -1 : found->second;
}

OpId op_by_name(const char* name) {
  if (find_op(name) < 0) import_module("gpuinterop.elementwise.calls");
  const int found = find_op(name);
  if (found < 0) {  // gpuinterop.elementwise.calls is about to add it
    PyErr_Format(PyExc_RuntimeError, "gpuinterop.elementwise.calls has no operation %s yet", name);
    throw PythonError();
  }
  return static_cast<OpId>(found);
}

PyObject* call(OpId op, PyObject* const* args, PyObject* const* outs, bool reflect, bool c_order) {
  const OpInfo& info = op_info(op);
  const char* where = info.name.c_str();
  FewValues<Input, 3> inputs(info.inputs);
  Input* in = inputs.get();
  PyObject* like = nullptr;
  for (int i = 0; i < info.inputs && !like; ++i)
    if (is_array(args[i])) like = args[i];
  FewValues<MaybeArray, 1> checked(info.results);
  if (outs) read_outs(info, outs, checked.get(), like);
  const Outs out_arrays = checked.get();
  for (int i = 0; i < info.inputs; ++i) {
    if (!read_input(in[i], args[i], like, where)) {
      if (reflect) Py_RETURN_NOTIMPLEMENTED;
      return call_python(op, info, args, outs);
    }
    if (!like && in[i].array) like = in[i].object;
  }
  if (!like) {
    read_scalar_as_array(in[0], where);
    like = in[0].object;
  }
  if (info.compares)
    for (int i = 0; i < 2; ++i) widen_compared(in[i], in[1 - i]);
  const Device device = unwrap(like).device;
  const Shape shape = broadcast_shape(info, in, out_arrays, device);
  const std::shared_ptr<const Resolution> resolution = resolve(op, info, in, out_arrays);
  const uint32_t apart = report_copies(info, in, out_arrays);

  FewValues<PyRef, 1> results(info.results);
  const Array* arrays[kMaxResults];
  for (int j = 0; j < info.results; ++j) {
    if (out_arrays[j]) {
      arrays[j] = &*out_arrays[j];
      if (arrays[j]->device != device)
        fail_with("out_on_other_device", where,
                  {device_text(device), device_text(arrays[j]->device)});
      if (!shape.is_of(arrays[j]->layout)) refuse_out(shape, arrays[j]->layout, where);
      results[j] = PyRef::borrow(outs[j]);
    } else {
      results[j] = PyRef::steal(
          wrap(resolution->result_types[static_cast<size_t>(j)],
               make_empty(device, resolution->results[static_cast<size_t>(j)],
                          layout_of_results(info, in, out_arrays, shape, c_order, where), where)));
      arrays[j] = &unwrap(results[j].get());
    }
    for (int k = 0; k < j; ++k)
      if (may_overlap(*arrays[j], *arrays[k], where)) fail_with("outs_overlap", where);
  }
  if (arrays[0]->layout.size() == 0)
    require_range(info, in, *resolution);
  else if (apart && !device.is_cuda())
    copy_new_results(op, info, in, out_arrays, results.get());
  else
    run(op, info, in, *resolution, shape, arrays, out_arrays, apart);
  return one_or_tuple(results.get(), info.results);
}

}  // namespace gpuinterop::ops
