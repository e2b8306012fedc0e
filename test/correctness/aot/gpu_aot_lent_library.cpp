// The library with a runtime that uses the device of whoever opens it.

#include "application_hooks.h"
#include "gpu_aot_library.cpp"
