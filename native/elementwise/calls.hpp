// Calls of elementwise operations. The first call with given classes and dtypes calls Python for the rules
// (dtypes, class of the result); later calls find them in the call cache.
#pragma once

#include "elementwise/launch.hpp"

namespace gpuinterop::ops {

constexpr int kMaxResults = 8;

struct OpInfo {
  std::string name;  // "add", for messages
  int inputs = 0, results = 0;
  bool compares = false;  // Python ints of any size are compared with narrow integers
  PyRef ufunc = {};       // the NumPy ufunc that the operation carries out, or null
};

OpId add_op(OpInfo info);
void drop_op(OpId op);  // nothing can call it any more
const OpInfo& op_info(OpId op);
int op_by_ufunc(PyObject* ufunc);   // -1 for none
int find_op(const char* name);      // -1: there is none
OpId op_by_name(const char* name);  // of the table; imports gpuinterop.elementwise.calls if need be

// `args` holds info.inputs objects, `outs` info.results objects or nulls (null itself: none given). Returns
// a new reference: one array, or a tuple for several results. If `reflect` is set and an operand has an
// unsupported type, returns Py_NotImplemented. New results have the operands' order in memory
// (Layout::in_memory_order), or C order if `c_order` is set. Throws.
PyObject* call(OpId op, PyObject* const* args, PyObject* const* outs, bool reflect,
               bool c_order = false);

}  // namespace gpuinterop::ops
