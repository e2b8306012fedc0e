// vulkan_json.h: writes JSON into a caller's array, and says how much room it would have needed. [pure]
//
// What the runtime says of itself (vulkan_describe.h) is read by tools of other versions and other languages, so it is
// text with names in it, not a structure. Like snprintf: what does not fit is cut, counted, and the caller tries again
// with more room. Commas are the writer's business; nesting and the pairing of begin and end the caller's.
//
// Thread rule: unsafe, an object of one call. Nothing is allocated.

#ifndef HALIDE_VULKAN_JSON_H
#define HALIDE_VULKAN_JSON_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

class Json {
public:
    // Room for `capacity` bytes, 0 allowed; NUL-terminated where there is room for one.
    HALIDE_VULKAN_COLD Json(char *to, size_t capacity) : to(to), capacity(capacity), needed(0), first(true) {
        if (capacity) to[0] = 0;
    }

    // Bytes of the whole text, with its NUL: as many make it fit.
    size_t size() const { return needed + 1; }

    // `name` is null inside an array and at the top.
    HALIDE_VULKAN_COLD Json &begin(const char *name, char bracket) {
        start(name);
        put(bracket);
        first = true;
        return *this;
    }
    HALIDE_VULKAN_COLD Json &end(char bracket) {
        put(bracket);
        first = false;
        return *this;
    }
    // Values go one to a line of code, so each is a function with a name.
    HALIDE_VULKAN_COLD Json &text(const char *name, const char *value) {
        start(name);
        quote(value ? value : "");
        return *this;
    }
    HALIDE_VULKAN_COLD Json &number(const char *name, uint64_t value) {
        start(name);
        char digits[24];
        Text(digits, sizeof(digits)) << value;
        raw(digits);
        return *this;
    }
    HALIDE_VULKAN_COLD Json &flag(const char *name, bool value) {
        start(name);
        raw(value ? "true" : "false");
        return *this;
    }

private:
    char *to;
    size_t capacity, needed;
    bool first;  // nothing was written since the innermost begin

    void put(char c) {
        if (needed + 1 < capacity) {
            to[needed] = c;
            to[needed + 1] = 0;
        }
        needed++;
    }
    void raw(const char *s) {
        for (; *s; s++) put(*s);
    }
    HALIDE_VULKAN_COLD void start(const char *name) {
        if (!first && needed) put(',');
        first = false;
        if (!name) return;
        quote(name);
        put(':');
    }
    // Names of devices and paths may hold anything. A byte over 127 is passed on: the text is UTF-8 if they were.
    HALIDE_VULKAN_COLD void quote(const char *s) {
        put('"');
        for (; *s; s++) {
            const unsigned char c = (unsigned char)*s;
            if (c == '"' || c == '\\') {
                put('\\');
                put(*s);
            } else if (c < 0x20) {
                raw("\\u00");
                put("0123456789abcdef"[c >> 4]);
                put("0123456789abcdef"[c & 15]);
            } else {
                put(*s);
            }
        }
        put('"');
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_JSON_H
