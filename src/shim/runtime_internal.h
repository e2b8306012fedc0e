// runtime_internal.h: what Halide's public headers ask for in a freestanding build. [standalone builds only]
//
// With COMPILING_HALIDE_RUNTIME defined, HalideRuntime.h includes a header of this name. Halide's source tree has one
// of its own; outside of a tree this one stands in for it and gives just what the public headers and our runtime may
// use: fixed-width integers, and those functions of the C library that every program has. Nothing in src/runtime
// includes it by name, so laid over a Halide tree the runtime compiles with Halide's own.

#ifndef HALIDE_VULKAN_SHIM_RUNTIME_INTERNAL_H
#define HALIDE_VULKAN_SHIM_RUNTIME_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#ifndef WEAK
#define WEAK __attribute__((weak))
#endif

extern "C" {
void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
size_t strlen(const char *text);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t bytes);
const char *strstr(const char *text, const char *part);
char *getenv(const char *name);
int atoi(const char *text);
void *malloc(size_t bytes);
void free(void *pointer);
void abort(void);
}

#endif
