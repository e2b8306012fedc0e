// vulkan_base.h: what every other header of this runtime stands on. [pure]
//
// The runtime is compiled freestanding to LLVM bitcode and linked into programs that may have no C++ library, so this
// file carries the few tools that would otherwise come from there: alignment and checked arithmetic, a bounded text
// writer, the failure record of one call, and a growable array of plain data.
//
// "[pure]" on a header's first line means: no Vulkan call, no Halide state. Pure headers are compiled natively by
// test/unit as well. A header includes only headers that stand above it in vulkan.cpp.
//
// Thread rule for everything here: unsafe, the owner locks.

#ifndef HALIDE_VULKAN_BASE_H
#define HALIDE_VULKAN_BASE_H

#include <stddef.h>
#include <stdint.h>

// Host allocation. Tests replace these two to count and to fail allocations.
#ifndef HALIDE_VULKAN_MALLOC
#define HALIDE_VULKAN_MALLOC(bytes) __builtin_malloc(bytes)
#define HALIDE_VULKAN_FREE(pointer) __builtin_free(pointer)
#endif

namespace halide_vulkan {
namespace {

// The halide_error_code_t values this runtime returns. Kept here as plain numbers so that pure headers need no Halide
// header; vulkan.cpp asserts that they agree with HalideRuntime.h.
enum Code : int {
    kSuccess = 0,
    kGenericError = -1,
    kExtentsTooLarge = -6,
    kOutOfMemory = -11,
    kCopyToHostFailed = -14,
    kCopyToDeviceFailed = -15,
    kDeviceMallocFailed = -16,
    kDeviceSyncFailed = -17,
    kDeviceFreeFailed = -18,
    kUnimplemented = -20,
    kSymbolNotFound = -21,
    kInternalError = -22,
    kDeviceRunFailed = -23,
    kGpuDeviceError = -29,
    kWrapNativeFailed = -32,
    kHostIsNull = -34,
    kNoDevice = -36,
    kBufferIsNull = -38,
    kBufferCopyFailed = -39,
    kCropFailed = -41,
    kIncompatibleDeviceInterface = -42,
};

inline void *host_malloc(size_t bytes) { return HALIDE_VULKAN_MALLOC(bytes); }
inline void host_free(void *pointer) {
    if (pointer) HALIDE_VULKAN_FREE(pointer);
}

template<typename T>
inline T min_of(T a, T b) {
    return a < b ? a : b;
}
template<typename T>
inline T max_of(T a, T b) {
    return a > b ? a : b;
}

// Rounds to a multiple of alignment, a power of two. (No division: 64-bit modulo is a library call on 32-bit targets.)
inline uint64_t align_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }
inline uint64_t align_down(uint64_t value, uint64_t alignment) { return value & ~(alignment - 1); }
inline bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

// Checked arithmetic: false, and *out untouched, where the result does not fit.
template<typename T>
inline bool checked_add(T a, T b, T *out) {
    T r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
// Signed 64-bit multiplication with overflow would be a library call (__mulodi4) on 32-bit targets; this one is not.
inline bool checked_mul(int64_t a, int64_t b, int64_t *out) {
    if (a == (int32_t)a && b == (int32_t)b) {
        *out = a * b;
        return true;
    }
    const bool negative = (a < 0) != (b < 0);
    const uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    const uint64_t xh = x >> 32, xl = x & 0xffffffffu, yh = y >> 32, yl = y & 0xffffffffu;
    if (xh != 0 && yh != 0) return false;
    const uint64_t cross = xh * yl + xl * yh;
    if (cross >> 32) return false;
    const uint64_t low = xl * yl;
    const uint64_t product = (cross << 32) + low;
    if (product < low || product > (uint64_t)INT64_MAX) return false;
    *out = negative ? -(int64_t)product : (int64_t)product;
    return true;
}

// Index of the lowest or highest set bit; value must not be 0.
inline int lowest_bit(uint64_t value) { return __builtin_ctzll(value); }
inline int highest_bit(uint64_t value) { return 63 - __builtin_clzll(value); }

// The C library's, which compares many bytes at once: a loop over a kernel's name was a tenth of a launch.
inline bool same_text(const char *a, const char *b) { return __builtin_strcmp(a, b) == 0; }
inline size_t text_length(const char *s) {
    size_t n = 0;
    while (s[n]) n++;
    return n;
}

// Writes into a caller's array and never past it; always NUL-terminated. What does not fit is cut.
// Its functions are kept out of line: messages stand on paths that are never taken, and inlined they would double the
// bitcode (808 KB against 379), which every process that compiles the runtime pays for.
#define HALIDE_VULKAN_COLD [[gnu::noinline, gnu::cold]]
constexpr size_t kQuotedBytes = 60;  // longer than every value that makes sense, but for paths
constexpr size_t kQuotedPathBytes = 240;
class Text {
public:
    HALIDE_VULKAN_COLD Text(char *to, size_t capacity) : at(to), end(to + capacity - 1) { *at = 0; }
    HALIDE_VULKAN_COLD Text &operator<<(const char *s) {
        if (!s) s = "(null)";
        while (*s && at < end) *at++ = *s++;
        *at = 0;
        return *this;
    }
    HALIDE_VULKAN_COLD Text &operator<<(uint64_t v) {
        char digits[24];
        int n = 0;
        do {
            const uint64_t q = v / 10;
            digits[n++] = (char)('0' + (int)(v - q * 10));
            v = q;
        } while (v);
        while (n > 0 && at < end) *at++ = digits[--n];
        *at = 0;
        return *this;
    }
    HALIDE_VULKAN_COLD Text &operator<<(int64_t v) {
        if (v < 0) return *this << "-" << (0 - (uint64_t)v);
        return *this << (uint64_t)v;
    }
    HALIDE_VULKAN_COLD Text &operator<<(uint32_t v) { return *this << (uint64_t)v; }
    HALIDE_VULKAN_COLD Text &operator<<(int32_t v) { return *this << (int64_t)v; }
    // What somebody else wrote, in quotes, and no more of it than leaves room for what is to be said of it.
    HALIDE_VULKAN_COLD Text &quote(const char *s, size_t most = kQuotedBytes) {
        const char *stop = s;
        while (*stop && (size_t)(stop - s) < most) stop++;
        const bool whole = !*stop;
        while (!whole && stop > s && (*stop & 0xc0) == 0x80) stop--;  // a character of UTF-8 is kept or left out whole
        *this << "'";
        while (s < stop && at < end) *at++ = *s++;
        return *this << (whole ? "'" : "...'");
    }
    HALIDE_VULKAN_COLD Text &hex(uint64_t v) {
        *this << "0x";
        int shift = 60;
        while (shift > 0 && (v >> shift) == 0) shift -= 4;
        for (; shift >= 0 && at < end; shift -= 4) *at++ = "0123456789abcdef"[(v >> shift) & 15];
        *at = 0;
        return *this;
    }

private:
    char *at, *end;
};

// What every message of ours begins with.
constexpr const char kOrigin[] = "Vulkan: ";
// A message, to be told within another: whose it is has been said then.
inline const char *without_origin(const char *message) {
    size_t n = 0;
    while (kOrigin[n] && message[n] == kOrigin[n]) n++;
    return kOrigin[n] ? message : message + n;
}

// What went wrong in one call of the runtime. It lives on the stack of the entry point; the first cause is kept, later
// ones are consequences. The entry point reports it with halide_error after every lock is released (an error handler
// may exit the process, and the exit handler takes the locks).
class Failure {
public:
    // Writes two bytes, not the whole message: a Failure is made by every call, and filled by few.
    Failure() {
        message[0] = 0;
        scratch[0] = 0;
    }

    int code = kSuccess;
    char message[512];

    bool failed() const { return code != kSuccess; }

    // Starts the message of a failure. A failure after the first writes into a scratch line that is dropped.
    HALIDE_VULKAN_COLD Text because(int new_code) {
        if (failed()) return Text(scratch, sizeof(scratch));
        code = new_code;
        return Text(message, sizeof(message));
    }

    // A cause that was kept apart until it was known to be one.
    HALIDE_VULKAN_COLD void take(const Failure &cause) { because(cause.code) << cause.message; }

private:
    char scratch[8];
};

// A failure that outlives the call that met it.
struct KeptFailure {
    int code;
    char message[512];

    void keep(const Failure &failure) {
        code = failure.code;
        Text(message, sizeof(message)) << failure.message;
    }
};

// A growable array of plain data (moved with memcpy, never constructed or destroyed).
// Growth allocates; capacity is kept by clear(), so that steady state allocates nothing.
template<typename T>
class Array {
public:
    Array() = default;
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;

    size_t size() const { return count; }
    bool empty() const { return count == 0; }
    T &operator[](size_t i) { return items[i]; }
    const T &operator[](size_t i) const { return items[i]; }
    T *data() { return items; }
    const T *data() const { return items; }
    T &back() { return items[count - 1]; }
    T *begin() { return items; }
    T *end() { return items + count; }
    const T *begin() const { return items; }
    const T *end() const { return items + count; }

    // False, and nothing changed, when memory is out.
    bool reserve(size_t wanted) {
        if (wanted <= capacity) return true;
        size_t grown = capacity ? capacity * 2 : 8;
        if (grown < wanted) grown = wanted;
        T *fresh = (T *)host_malloc(grown * sizeof(T));
        if (!fresh) return false;
        if (count) __builtin_memcpy((void *)fresh, (const void *)items, count * sizeof(T));
        host_free(items);
        items = fresh;
        capacity = grown;
        return true;
    }
    bool push(const T &item) {
        if (count == capacity) {
            const T copy = item;  // item may live in the array that grows
            if (!reserve(count + 1)) return false;
            items[count++] = copy;
            return true;
        }
        items[count++] = item;
        return true;
    }
    // Sets the size; new items are zero bytes. False when memory is out.
    bool resize(size_t wanted) {
        if (!reserve(wanted)) return false;
        if (wanted > count) __builtin_memset((void *)(items + count), 0, (wanted - count) * sizeof(T));
        count = wanted;
        return true;
    }
    void pop() { count--; }
    void remove_swapping_last(size_t i) { items[i] = items[--count]; }
    void clear() { count = 0; }
    // Gives the memory back. Not a destructor: globals of this runtime must have none.
    void release() {
        host_free(items);
        items = nullptr;
        count = capacity = 0;
    }

private:
    T *items = nullptr;
    size_t count = 0, capacity = 0;
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_BASE_H
