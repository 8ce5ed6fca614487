// The two ways to fail in C++. fail_with(builder, ...) raises an error that several places raise, with the
// text of gpuinterop/errors/messages.py. fail(...) raises any other and spells out its four parts.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <variant>
#include <vector>

namespace gpuinterop {

// clang-format off
// What failed: the name here, the class in gpuinterop/errors/__init__.py.
#define GPUINTEROP_KINDS(X) \
  X(Contiguity, ContiguityError)         /* ValueError + BufferError: the strides do not allow the operation */        \
  X(Shape, ShapeError)                   /* ValueError: shapes, axes or counts do not fit */                           \
  X(Bounds, BoundsError)                 /* ValueError: memory bounds or integer range */                              \
  X(Range, RangeError)                   /* OverflowError: a number that a dtype cannot hold */                        \
  X(Index, ArrayIndexError)              /* IndexError */                                                              \
  X(ConversionType, ConversionTypeError) /* TypeError + ValueError: an object that no protocol or converter accepts */ \
  X(DType, DTypeError)                   /* TypeError + ValueError: dtype rule */                                      \
  X(Export, ExportError)                 /* BufferError + ValueError: a protocol cannot express this array */          \
  X(Exchange, ExchangeError)             /* ValueError + BufferError: malformed or refused import */                   \
  X(ReadOnly, ReadOnlyError)             /* ValueError + BufferError */                                                \
  X(DeviceMismatch, DeviceMismatchError) /* ValueError + BufferError */                                                \
  X(Device, DeviceError)                 /* ValueError: no such device */                                              \
  X(Stream, StreamError)                 /* ValueError: an argument that is not a usable stream */                     \
  X(Capture, CaptureError)               /* RuntimeError: would synchronise or is illegal during graph capture */      \
  X(Context, ContextError)               /* RuntimeError: memory or stream of a foreign CUDA context */                \
  X(Library, LibraryNotFoundError)       /* OSError: a shared library is missing */                                    \
  X(Cuda, CudaError)                     /* RuntimeError: a driver call failed */                                      \
  X(OutOfMemory, OutOfMemoryError)       /* MemoryError */                                                             \
  X(Type, ArgumentTypeError)             /* TypeError */                                                               \
  X(Protocol, ProtocolError)             /* TypeError: an exchange protocol was not followed */                        \
  X(Unsupported, UnsupportedError)       /* NotImplementedError: an unsupported part of a protocol */
// clang-format on

enum class Kind {
#define X(kind, error_class) kind,
  GPUINTEROP_KINDS(X)
#undef X
};

// An argument of a builder: shapes, dtypes and devices are passed as text.
using MessageValue = std::variant<int64_t, std::string>;

struct Error final : std::exception {
  Kind kind = Kind::Type;  // of an error without a builder
  std::string where, expected, got, fix;
  const char* builder = nullptr;  // a function of gpuinterop/errors/messages.py
  std::vector<MessageValue> values;
  Error(Kind k, std::string w, std::string e, std::string g, std::string f)
      : kind(k),
        where(std::move(w)),
        expected(std::move(e)),
        got(std::move(g)),
        fix(std::move(f)) {}
  Error(const char* name, std::string w, std::vector<MessageValue> v)
      : where(std::move(w)), expected(name), builder(name), values(std::move(v)) {}
  const char* what() const noexcept override { return expected.c_str(); }
};

// Thrown when the Python error indicator is already set.
struct PythonError final : std::exception {};

[[noreturn]] inline void fail(Kind kind, std::string where, std::string expected, std::string got,
                              std::string fix) {
  throw Error(kind, std::move(where), std::move(expected), std::move(got), std::move(fix));
}

[[noreturn]] inline void fail_with(const char* builder, std::string where,
                                   std::vector<MessageValue> values = {}) {
  throw Error(builder, std::move(where), std::move(values));
}

}  // namespace gpuinterop
