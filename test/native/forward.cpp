// The module that libHalide sees when the runtime behind it is a native library: every function jumps there.
//
// libHalide takes a runtime as bitcode only. So that the tests of a JIT program can run with a runtime that sanitizers
// and coverage have instrumented, this small module is put in place of ours. It exports the same functions, and each is
// one jump through a slot. When it starts it asks connect.cpp to load the native runtime and to fill the slots, and
// hands over the functions of Halide's that the native runtime calls. When it ends, the native runtime is unloaded; so
// it begins anew as often as the real module would.
//
// The functions' names are taken from the bitcode of the real module (forward_names.cmake); their types do not matter
// to a jump. x86-64 only.

#ifndef HV_FLAVOUR
#error "HV_FLAVOUR says whether this is the release (0) or the debug flavour (1)"
#endif

extern "C" {

void hv_native_connect(int flavour, void **imports, const char **names, void ***slots, int count);
void hv_native_disconnect(int flavour);

#define HV_EXPORT(name)                                                                                                \
    void *hv_slot_##name;                                                                                              \
    __attribute__((weak, naked)) void name() { __asm__("jmp *hv_slot_" #name "(%rip)"); }
#define HV_IMPORT(name)
#include "forward_names.inc"
#undef HV_EXPORT
#undef HV_IMPORT

#define HV_EXPORT(name)
#define HV_IMPORT(name) void name();
#include "forward_names.inc"
#undef HV_EXPORT
#undef HV_IMPORT

static void *imports[] = {
#define HV_EXPORT(name)
#define HV_IMPORT(name) (void *)name,
#include "forward_names.inc"
#undef HV_EXPORT
#undef HV_IMPORT
};

static const char *names[] = {
#define HV_EXPORT(name) #name,
#define HV_IMPORT(name)
#include "forward_names.inc"
#undef HV_EXPORT
};

static void **slots[] = {
#define HV_EXPORT(name) &hv_slot_##name,
#include "forward_names.inc"
#undef HV_EXPORT
#undef HV_IMPORT
};

__attribute__((constructor)) static void start() {
    hv_native_connect(HV_FLAVOUR, imports, names, slots, (int)(sizeof(names) / sizeof(names[0])));
}
__attribute__((destructor)) static void end() { hv_native_disconnect(HV_FLAVOUR); }

}  // extern "C"
