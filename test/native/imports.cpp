// What the native runtime calls of Halide's, in a JIT program: jumps into the JIT's functions, see forward.cpp.
//
// They are hidden: in the same process libHalide may well show functions of these names that are not the JIT's.

#define HV_EXPORT(name)

extern "C" {
extern void *HV_IMPORT_TABLE[];  // in connect.cpp; filled before this library is loaded
}

namespace {
enum Index {
#define HV_IMPORT(name) k_##name,
#include "forward_names.inc"
#undef HV_IMPORT
};
}  // namespace

#define HV_TEXT2(x) #x
#define HV_TEXT(x) HV_TEXT2(x)
#define HV_IMPORT(name)                                                                                                \
    extern "C" __attribute__((naked, visibility("hidden"))) void name() {                                              \
        __asm__("movq " HV_TEXT(HV_IMPORT_TABLE) "@GOTPCREL(%%rip), %%r11\n\tjmp *%c0(%%r11)" : : "i"(8 * k_##name));  \
    }
#include "forward_names.inc"
