// Device of Python, by number.
#include "devices/device_objects.hpp"

#include <optional>
#include <utility>

#include "devices/cuda.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/hooks.hpp"

namespace gpuinterop {

namespace nb = nanobind;

namespace {

PyObject* device_objects[2][kMaxDevices] = {};

}  // namespace

PyObject* device_object(Device device) {
  static PyObject* last = nullptr;  // keeps an uncached object alive until the next call
  const bool small = device.id >= 0 && device.id < kMaxDevices;
  PyObject*& slot = small ? device_objects[device.is_cuda()][device.id] : last;
  if (!slot || !small) {
    PyRef fresh = call_hook(Hook::Device, "((ii))", int(device.type), int(device.id));
    Py_XDECREF(std::exchange(slot, fresh.release()));
  }
  return slot;
}

std::optional<Device> find_device(PyObject* device) {
  for (const auto& row : device_objects)
    for (int id = 0; id < kMaxDevices && row[id]; ++id)
      if (row[id] == device)
        return Device{&row == device_objects ? DeviceType::Cpu : DeviceType::Cuda, id};
  if (Py_TYPE(device) != Py_TYPE(device_object(Device{}))) return {};
  const auto number = [device](const char* name) {
    const PyRef value = PyRef::checked(PyObject_GetAttrString(device, name));
    return static_cast<int>(PyLong_AsLong(value.get()));
  };
  return read_device(number("type_code"), number("index"), "device");
}

Device read_device(int type, int id, const char* where) {
  if (type != 1 && type != 2)
    fail(Kind::Device, where, "device type 1 (cpu) or 2 (cuda)", std::to_string(type),
         "pass a device of gpuinterop.devices()");
  return {static_cast<DeviceType>(type), type == 1 ? 0 : id};
}

std::string device_text(Device device) {
  return device.is_cuda() ? "cuda:" + std::to_string(device.id) : "cpu";
}

Device parse_device(nb::object spec) {
  const nb::object device = nb::steal(call_hook(Hook::Device, "(O)", spec.ptr()).release());
  return {DeviceType(nb::cast<int>(device.attr("type_code"))), nb::cast<int>(device.attr("index"))};
}

nb::object python_device(Device d) { return nb::borrow(device_object(d)); }

}  // namespace gpuinterop
