// The same runtime for Windows targets: libHalide keeps it as a module of its own, windows_vulkan.

#define WINDOWS
#include "vulkan.cpp"
