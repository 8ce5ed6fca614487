// Device of Python, by number.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "devices/buffer.hpp"

namespace gpuinterop {

std::string device_text(Device device);  // as str() of a gpuinterop.Device
PyObject* device_object(Device device);  // borrowed; throws
// A device given by its type and number, by any value that names one, and as an object of Python.
Device read_device(int type, int id, const char* where);
Device parse_device(nanobind::object spec);
nanobind::object python_device(Device d);

}  // namespace gpuinterop
