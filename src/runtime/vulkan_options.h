// vulkan_options.h: the options of vulkan_options.def as values.
//
// Text options belong to the process: halide_vulkan_set_* copies the text, the getter returns the stored text and falls
// back to the environment the first time. A text of more than 1022 characters is cut to 1023, so that whoever reads it
// sees that it was, and refuses it: none of that length is a device, a limit, or a list or path of use. Numbers are
// read from the environment each time a context is made, so a value that is wrong is reported by the call that would
// have used it.
//
// Thread rule: getters and setters lock; a getter's pointer stays valid, its text changes with the next setter call.

#ifndef HALIDE_VULKAN_OPTIONS_H
#define HALIDE_VULKAN_OPTIONS_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

constexpr size_t kTextBytes = 1024;  // room for a text, with its end
// Whether a text fills that room: then it was cut, or just fits, and nobody can tell.
inline bool may_be_cut(const char *text) { return text_length(text) + 1 >= kTextBytes; }

struct TextOption {
    char text[kTextBytes];
    bool known;  // set by a setter, or already read from the environment
};

struct TextOptions {
    halide_mutex lock;
#define HV_TEXT(name, environment, fallback, reason) TextOption name;
#include "vulkan_options.def"
};

TextOptions text_options;  // zero-initialised

inline void store_text(TextOption &option, const char *value) {
    size_t n = 0;
    for (; value && value[n] && n + 1 < sizeof(option.text); n++) option.text[n] = value[n];
    option.text[n] = 0;
    option.known = true;
}

inline void set_text(TextOption &option, const char *value) {
    halide_mutex_lock(&text_options.lock);
    store_text(option, value);
    halide_mutex_unlock(&text_options.lock);
}

inline const char *get_text(TextOption &option, const char *environment, const char *fallback) {
    halide_mutex_lock(&text_options.lock);
    if (!option.known) {
        const char *value = getenv(environment);
        if (!value && fallback) value = getenv(fallback);
        store_text(option, value);
    }
    halide_mutex_unlock(&text_options.lock);
    return option.text;
}

// The names of the variables that name folders.
#define HV_PATH(name, environment, reason) constexpr const char *name##_variable = environment;
#include "vulkan_options.def"

struct NumberOptions {
#define HV_CHOICE(name, environment, words, reason) uint32_t name;
#define HV_NUMBER(name, environment, standard, smallest, largest, reason) uint32_t name;
#include "vulkan_options.def"
};

// Reads a whole number at s and moves s behind it. False when there is none or it is over 2^32 - 1.
inline bool read_number(const char *&s, uint32_t &out) {
    const bool hex = s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
    const char *at = hex ? s + 2 : s;
    const char *first = at;
    uint64_t value = 0;
    for (;; at++) {
        int digit;
        if (*at >= '0' && *at <= '9') {
            digit = *at - '0';
        } else if (hex && (*at | 32) >= 'a' && (*at | 32) <= 'f') {
            digit = (*at | 32) - 'a' + 10;
        } else {
            break;
        }
        value = value * (hex ? 16 : 10) + (uint32_t)digit;
        if (value > 0xffffffffu) return false;
    }
    if (at == first) return false;
    s = at;
    out = (uint32_t)value;
    return true;
}

inline bool read_number_option(const char *environment, uint32_t standard, uint32_t smallest, uint32_t largest,
                               uint32_t &out, Failure &failure) {
    out = standard;
    const char *value = getenv(environment);
    if (!value || !*value) return true;
    const char *at = value;
    uint32_t number = 0;
    if (!read_number(at, number) || *at || number < smallest || number > largest) {
        (failure.because(kGenericError) << "Vulkan: " << environment << " is ").quote(value)
            << "; it takes a whole number from " << smallest << " to " << largest;
        return false;
    }
    out = number;
    return true;
}

// The place of `value` in a list of words separated by '|'; false when it is none of them.
inline bool find_word(const char *words, const char *value, uint32_t &place) {
    for (place = 0;; place++) {
        size_t n = 0;
        while (words[n] && words[n] != '|') n++;
        size_t same = 0;
        while (same < n && value[same] == words[same]) same++;
        if (same == n && value[n] == 0) return true;
        if (!words[n]) return false;
        words += n + 1;
    }
}

inline bool read_choice_option(const char *environment, const char *words, uint32_t &out, Failure &failure) {
    out = 0;
    const char *value = getenv(environment);
    if (!value || !*value) return true;
    if (find_word(words, value, out)) return true;
    (failure.because(kGenericError) << "Vulkan: " << environment << " is ").quote(value)
        << "; it takes one of " << words;
    return false;
}

inline bool read_number_options(NumberOptions &options, Failure &failure) {
#define HV_CHOICE(name, environment, words, reason)                                                                    \
    if (!read_choice_option(environment, words, options.name, failure)) return false;
#define HV_NUMBER(name, environment, standard, smallest, largest, reason)                                              \
    if (!read_number_option(environment, standard, smallest, largest, options.name, failure)) return false;
#include "vulkan_options.def"
    return true;
}

// The limits of HL_VK_ALLOC_CONFIG in bytes; 0 = no limit.
struct AllocConfig {
    uint64_t pool_bytes;
    uint64_t min_block_bytes;
    uint64_t max_block_bytes;
    uint32_t max_blocks;
    uint32_t multiple;
};

// "N:N:N:N:N", trailing numbers may be left out; ':' and ';' both separate.
inline bool parse_alloc_config(const char *text, AllocConfig &out, Failure &failure) {
    uint32_t numbers[5] = {0, 0, 0, 0, 0};
    const char *at = text;
    int n = 0;
    bool good = true;
    while (*at && good) {
        good = n < 5 && read_number(at, numbers[n]);
        n++;
        if (good && *at) {
            good = *at == ':' || *at == ';';
            at++;
        }
    }
    if (!good) {
        (failure.because(kGenericError) << "Vulkan: HL_VK_ALLOC_CONFIG is ").quote(text)
            << "; it takes up to five whole numbers pool_MB:min_block_MB:max_block_MB:max_blocks:multiple";
        return false;
    }
    if (numbers[1] && numbers[2] && numbers[1] > numbers[2]) {
        (failure.because(kGenericError) << "Vulkan: HL_VK_ALLOC_CONFIG is ").quote(text)
            << "; its smallest block, " << numbers[1] << " MB, is larger than its largest, " << numbers[2] << " MB";
        return false;
    }
    out.pool_bytes = (uint64_t)numbers[0] << 20;
    out.min_block_bytes = (uint64_t)numbers[1] << 20;
    out.max_block_bytes = (uint64_t)numbers[2] << 20;
    out.max_blocks = numbers[3];
    out.multiple = numbers[4];
    return true;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_OPTIONS_H
