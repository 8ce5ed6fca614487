// The two ways to fail in C++. fail_with(builder, ...) raises an error that several places raise, with the
// text of gpuinterop/error_messages.py. fail(...) raises any other and spells out its four parts.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <variant>
#include <vector>

namespace gpuinterop {

// Names of classes in gpuinterop/errors.py; python/error_translation.cpp maps them one to one.
enum class Kind {
  Contiguity,      // ValueError + BufferError: the strides do not allow the operation
  Shape,           // ValueError: shapes, axes or counts do not fit
  Bounds,          // ValueError: memory bounds or integer range
  Range,           // OverflowError: a number that a dtype cannot hold
  Index,           // IndexError
  ScalarIndex,     // IndexError + ValueError: a 0-d array was indexed
  IndexKind,       // NotImplementedError + IndexError: a kind of key that is not supported
  ConversionType,  // TypeError + ValueError: an object that no protocol or converter accepts
  DType,           // TypeError + ValueError: dtype rule
  CopyForbidden,   // ValueError + BufferError: a copy is needed and was forbidden
  Export,          // BufferError + ValueError: a protocol cannot express this array
  Exchange,        // ValueError + BufferError: malformed or refused import
  ReadOnly,        // ValueError + BufferError
  DeviceMismatch,  // ValueError + BufferError
  Device,          // ValueError: no such device
  Stream,          // ValueError: an argument that is not a usable stream
  Capture,         // RuntimeError: would synchronise or is illegal during graph capture
  Context,         // RuntimeError: memory or stream of a foreign CUDA context
  Library,         // OSError: a shared library is missing
  Cuda,            // RuntimeError: a driver call failed
  OutOfMemory,     // MemoryError
  Type,            // TypeError
  Protocol,        // TypeError: an exchange protocol was not followed
  Unsupported,     // NotImplementedError: an unsupported part of a protocol
};

// An argument of a builder: shapes, dtypes and devices are passed as text.
using MessageValue = std::variant<int64_t, std::string>;

struct Error final : std::exception {
  Kind kind = Kind::Type;  // of an error without a builder
  std::string where, expected, got, fix;
  int axis = -1;                  // at fault, or -1
  const char* builder = nullptr;  // a function of gpuinterop/error_messages.py
  std::vector<MessageValue> values;
  Error(Kind k, std::string w, std::string e, std::string g, std::string f, int axis)
      : kind(k),
        where(std::move(w)),
        expected(std::move(e)),
        got(std::move(g)),
        fix(std::move(f)),
        axis(axis) {}
  Error(const char* name, std::string w, std::vector<MessageValue> v)
      : where(std::move(w)), expected(name), builder(name), values(std::move(v)) {}
  const char* what() const noexcept override { return expected.c_str(); }
};

// Thrown when the Python error indicator is already set.
struct PythonError final : std::exception {};

[[noreturn]] inline void fail(Kind kind, std::string where, std::string expected, std::string got,
                              std::string fix, int axis = -1) {
  throw Error(kind, std::move(where), std::move(expected), std::move(got), std::move(fix), axis);
}

[[noreturn]] inline void fail_with(const char* builder, std::string where,
                                   std::vector<MessageValue> values = {}) {
  throw Error(builder, std::move(where), std::move(values));
}

}  // namespace gpuinterop
