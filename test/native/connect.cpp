// Loads a native runtime for the module in forward.cpp and joins the two. Part of the library that stands in for
// libHalideVulkan.so, beside the arrays of bitcode.
//
// The native runtime is a shared library next to this one, one for each flavour. It is opened when a module starts and
// closed when the module ends, so its globals begin at zero each time, as a module's do.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {

// What imports.cpp jumps through; one table for each flavour.
__attribute__((visibility("default"))) void *hv_native_imports_0[128], *hv_native_imports_1[128];

static void *libraries[2];

__attribute__((visibility("default"))) void hv_native_connect(int flavour, void **imports, const char **names,
                                                              void ***slots, int count) {
#define HV_EXPORT(name)
#define HV_IMPORT(name) +1
    const int import_count = 0
#include "forward_names.inc"
        ;
    static_assert(import_count <= 128, "the tables are large enough");
    memcpy(flavour ? hv_native_imports_1 : hv_native_imports_0, imports, (size_t)import_count * sizeof(void *));

    Dl_info self = {};
    char path[4096];
    dladdr((void *)hv_native_connect, &self);
    const int folder = (int)(strrchr(self.dli_fname, '/') - self.dli_fname);
    snprintf(path, sizeof(path), "%.*s/runtime%s.so", folder, self.dli_fname, flavour ? "_debug" : "");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "native runtime: %s\n", dlerror());
        abort();
    }
    libraries[flavour] = library;
    for (int i = 0; i < count; i++) {
        *slots[i] = dlsym(library, names[i]);
        if (!*slots[i]) {
            fprintf(stderr, "native runtime: %s does not define %s\n", path, names[i]);
            abort();
        }
    }
}

__attribute__((visibility("default"))) void hv_native_disconnect(int flavour) {
    if (libraries[flavour]) dlclose(libraries[flavour]);
    libraries[flavour] = nullptr;
}

}  // extern "C"
