// What the linker puts in the place of functions of the C++ runtime and of nanobind (--wrap in CMakeLists.txt).
#include <Python.h>
#include <unistd.h>
#include <unwind.h>

extern "C" {

// Exported by every CPython, but not declared for the stable ABI.
PyAPI_FUNC(PyObject*) PyMethod_New(PyObject*, PyObject*);

_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* frame);

// The unwinder calls this for each frame of this library with destructors, handlers or noexcept. A thread that takes
// the GIL while the interpreter shuts down is unwound by CPython before 3.14. Here that would end the process, or run
// destructors that use Python without the GIL. Such a thread waits for the end of the process, as from 3.14 on.
_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* frame) {
  if (actions & _UA_FORCE_UNWIND)
    for (;;) pause();
  return __real___gxx_personality_v0(version, actions, kind, exception, frame);
}

// Registers the destructor of a static object. None runs: threads without the GIL may use the objects until the
// process ends, and the interpreter that Python objects need is gone by then.
int __wrap___cxa_atexit(void (*)(void*), void*, void*) { return 0; }

// The bound method of a function of nanobind, which crashes where there is no memory for its own kind.
PyObject* __wrap__ZN8nanobind6detail19nb_method_descr_getEP7_objectS2_S2_(PyObject* function,
                                                                          PyObject* self,
                                                                          PyObject*) {
  return self ? PyMethod_New(function, self) : Py_NewRef(function);
}

}  // extern "C"
