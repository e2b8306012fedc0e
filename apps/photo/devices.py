"""The names of the GPUs of this machine, asked from the drivers, since Halide does not tell which it uses."""

import ctypes


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


# VkPhysicalDeviceProperties begins with five numbers of 32 bits; the name, 256 bytes, follows. The whole structure is
# well under a kilobyte.
_NAME_OFFSET, _NAME_BYTES, _PROPERTIES_BYTES = 20, 256, 2048


def vulkan_devices():
    """A list of names; empty without a loader, a driver or a device."""
    try:
        vulkan = ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return []
    info, instance = _InstanceCreateInfo(sType=1), ctypes.c_void_p()
    if vulkan.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(instance)) != 0:
        return []
    devices, count = (ctypes.c_void_p * 16)(), ctypes.c_uint32(16)
    names = []
    if vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices) >= 0:
        for device in devices[: count.value]:
            properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
            vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), properties)
            names.append(properties.raw[_NAME_OFFSET : _NAME_OFFSET + _NAME_BYTES].split(b"\0")[0].decode())
    vulkan.vkDestroyInstance(instance, None)
    return names


def has_cuda():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False
