// The one way to fail in C++: fail(...) throws, the guard at the Python border turns it into a
// class of gpuinterop/errors.py. Every message has four parts, so none can be forgotten.
#pragma once

#include <exception>
#include <string>

namespace gpuinterop {

// Names of classes in gpuinterop/errors.py; python/error_translation.cpp maps them one to one.
enum class Kind {
  Contiguity,      // ValueError + BufferError: strides forbid what was asked
  Shape,           // ValueError: shapes, axes or counts do not fit
  Bounds,          // ValueError: memory bounds or integer range
  Range,           // OverflowError: a number that a dtype cannot hold
  Index,           // IndexError
  ScalarIndex,     // IndexError + ValueError: a 0-d array was indexed
  IndexKind,       // NotImplementedError + IndexError: a kind of key that is not supported
  ConversionType,  // TypeError + ValueError: an object or dtype that cannot be taken
  DType,           // TypeError + ValueError: dtype rule
  CopyForbidden,   // ValueError + BufferError: a copy is needed and was forbidden
  Export,          // BufferError + ValueError: a protocol cannot express this array
  Exchange,        // ValueError + BufferError: malformed or refused import
  ReadOnly,        // ValueError + BufferError
  DeviceMismatch,  // ValueError + BufferError
  Device,          // ValueError: no such device
  Stream,          // ValueError + TypeError is not used: a stream argument with no meaning
  Capture,         // RuntimeError: would synchronise or is illegal during graph capture
  Context,         // RuntimeError: memory or stream of a foreign CUDA context
  Library,         // OSError: a shared library is missing
  Cuda,            // RuntimeError: a driver call failed
  OutOfMemory,     // MemoryError
  Type,            // plain TypeError
  Protocol,        // TypeError: an exchange protocol was not followed
  Unsupported,     // NotImplementedError: a part of a protocol that is not read here
};

struct Error final : std::exception {
  Kind kind;
  std::string where, expected, got, fix;
  int axis;  // at fault, or -1
  Error(Kind k, std::string w, std::string e, std::string g, std::string f, int axis)
      : kind(k),
        where(std::move(w)),
        expected(std::move(e)),
        got(std::move(g)),
        fix(std::move(f)),
        axis(axis) {}
  const char* what() const noexcept override { return expected.c_str(); }
};

// Thrown when the Python error indicator is already set.
struct PythonError final : std::exception {};

[[noreturn]] inline void fail(Kind kind, std::string where, std::string expected, std::string got,
                              std::string fix, int axis = -1) {
  throw Error(kind, std::move(where), std::move(expected), std::move(got), std::move(fix), axis);
}

}  // namespace gpuinterop
