// vulkan_system_error.h: why the system refused, in its own words.
//
// Problem: a folder that is full and one that is not there look the same to whoever only learns that a file could not
// be made. The C library knows the reason. Its functions are found by name, as everywhere in this runtime; where they
// are not, less is said.
//
// Thread rule: any thread. The texts are the C library's, and hold until the calling thread asks it for the next.

#ifndef HALIDE_VULKAN_SYSTEM_ERROR_H
#define HALIDE_VULKAN_SYSTEM_ERROR_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

// errno's text. To be asked for before any other call into the C library.
HALIDE_VULKAN_COLD inline const char *system_error() {
    typedef int *(*ErrorNumber)();
    typedef const char *(*ErrorText)(int);
    const char *const names[] = {"__errno_location", "__error", "__errno"};  // glibc and musl, macOS, Android
    ErrorNumber number = nullptr;
    for (const char *name : names) {
        if (!number) number = (ErrorNumber)halide_get_symbol(name);
    }
    const int error = number ? *number() : 0;
    const ErrorText text = (ErrorText)halide_get_symbol("strerror");
    return error && text ? text(error) : "the system does not say why";
}

// Why the dynamic linker does not open a file; null when it does. Asked anew: Halide's own way to open a library has
// taken the text by then.
HALIDE_VULKAN_COLD inline const char *loading_error(const char *path) {
    typedef void *(*Open)(const char *, int);
    typedef int (*Close)(void *);
    typedef const char *(*ErrorText)();
    const Open open = (Open)halide_get_symbol("dlopen");
    const ErrorText text = (ErrorText)halide_get_symbol("dlerror");
    const Close close = (Close)halide_get_symbol("dlclose");
    const char *why = "it cannot be loaded";
    if (!open || !text || !close) return why;  // Windows, or a static program
    if (void *library = open(path, 1)) {       // RTLD_LAZY, everywhere
        close(library);
        return nullptr;
    }
    if (const char *said = text()) why = said;
    // Most begin with the path.
    const size_t length = text_length(path);
    if (__builtin_strncmp(why, path, length) == 0 && why[length] == ':') why += length + 1;
    while (*why == ' ') why++;
    return why;
}

// Null where a file of this name can be read and written from the beginning, or is not there; else why not. A FIFO that
// is opened for one direction waits for somebody at its other end, for good if nobody comes; for both it does not.
HALIDE_VULKAN_COLD inline const char *why_no_file(const char *path) {
    typedef int (*Open)(const char *, int, ...);
    typedef long (*Seek)(int, long, int);
    typedef int (*Close)(int);
    const Open open = (Open)halide_get_symbol("open");
    const Seek seek = (Seek)halide_get_symbol("lseek");
    const Close close = (Close)halide_get_symbol("close");
    if (!open || !seek || !close) return nullptr;
    const int file = open(path, 2);            // O_RDWR, everywhere
    if (file < 0) return nullptr;              // whoever opens it for what he needs is told why
    const bool found = seek(file, 0, 1) >= 0;  // SEEK_CUR
    close(file);
    return found ? nullptr : "it is a pipe, a terminal or a socket, not a file";
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_SYSTEM_ERROR_H
