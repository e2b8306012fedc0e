"""The Vulkan devices of this machine, asked from the drivers, since Halide does not tell which it uses."""

import ctypes
import typing


class _InstanceCreateInfo(ctypes.Structure):
    _fields_ = [
        ("sType", ctypes.c_uint32),  # 1: VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
        ("pNext", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("pApplicationInfo", ctypes.c_void_p),
        ("enabledLayerCount", ctypes.c_uint32),
        ("ppEnabledLayerNames", ctypes.c_void_p),
        ("enabledExtensionCount", ctypes.c_uint32),
        ("ppEnabledExtensionNames", ctypes.c_void_p),
    ]


# VkPhysicalDeviceProperties begins with five numbers of 32 bits, the last of which is the type; the name, 256 bytes,
# follows. The whole structure is well under a kilobyte.
_TYPE_OFFSET, _NAME_OFFSET, _NAME_BYTES, _PROPERTIES_BYTES = 16, 20, 256, 2048
_TYPE_CPU = 4


class Device(typing.NamedTuple):
    name: str
    is_software: bool  # runs kernels on the processor


def vulkan_devices():
    """A list of them; empty without a loader, a driver or a device."""
    try:
        vulkan = ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return []
    info, instance = _InstanceCreateInfo(sType=1), ctypes.c_void_p()
    if vulkan.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(instance)) != 0:
        return []
    devices, count = (ctypes.c_void_p * 16)(), ctypes.c_uint32(16)
    found = []
    if vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices) >= 0:
        for device in devices[: count.value]:
            properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
            vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), properties)
            name = properties.raw[_NAME_OFFSET : _NAME_OFFSET + _NAME_BYTES].split(b"\0")[0].decode()
            kind = ctypes.c_uint32.from_buffer(properties, _TYPE_OFFSET).value
            found.append(Device(name, kind == _TYPE_CPU))
    vulkan.vkDestroyInstance(instance, None)
    return found


def has_cuda():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False
