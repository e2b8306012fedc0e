// mock.h: how a test talks to the mock Vulkan driver.
//
// The mock is a shared library with one Vulkan function, vkGetInstanceProcAddr; HL_VK_LOADER_LIB makes a runtime load
// it as its loader. It does what a test says and no more, without a device: work finishes when the test wants it to,
// any call fails with any result, and every handle is checked. Memory is real, so copies and fills move bytes, in
// order, at the moment a submission finishes; dispatches run C functions that the test registers by kernel name. What
// kind of device it is stands in profiles.cpp as data.
//
// What is checked, at each call: handles are alive, of the right type and of the same device; allocation callbacks are
// the same at both ends of a life; what a pending submission uses is not destroyed, reset, updated or submitted again;
// copies stay inside their buffers. The first fault is kept as text (mock_wrong_use).
//
// A test opens the very file that the runtime loads (HV_MOCK, which CTest sets) and finds the functions in it. The
// file stays loaded, so failures and the profile are set before the first Vulkan call and the ledger is read after the
// last.
//
// Without a test that talks to it, three variables set it up: HV_MOCK_PROFILE names the profile ("null": every call
// returns at once, nothing is checked or executed: for measuring what a caller itself costs), HV_MOCK_POLLS=n lets a
// submission finish after n looks at its fence, HV_MOCK_REPORT names a file for the counts.
//
// Thread rule: all functions may be called from any thread at any time. The profile is read when an instance is made.

#ifndef HALIDE_VULKAN_MOCK_H
#define HALIDE_VULKAN_MOCK_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// One binding of a dispatch, and the dispatch as a kernel's function sees it.
struct MockBinding {
    uint8_t *bytes;
    uint64_t size;
};
struct MockDispatch {
    const char *kernel;
    uint32_t groups[3], local_size[3];
    const struct MockBinding *bindings;
    uint32_t binding_count;
    const uint8_t *push;   // 128 bytes; null where the shader has none
    const uint32_t *code;  // the SPIR-V
    uint64_t code_words;
};
typedef void (*MockKernel)(const struct MockDispatch *);

enum MockCompletion {
    MOCK_AT_ONCE,      // work is done when vkQueueSubmit returns
    MOCK_AFTER_POLLS,  // after n calls that look at its fence or semaphore; a wait finishes it
    MOCK_BY_HAND,      // when mock_finish says so; waits block until then
};

// X(return type, function without mock_, parameters, arguments)
#define MOCK_FUNCTIONS(X)                                                                                              \
    /* The device from now on, for instances that are made later. 0: no such profile. */                               \
    X(int, profile, (const char *name), (name))                                                                        \
    /* Calls of one entry point since the last reset; UINT64_MAX for an unknown name. All whose names begin so. */     \
    X(uint64_t, count, (const char *call), (call))                                                                     \
    X(uint64_t, count_prefix, (const char *prefix), (prefix))                                                          \
    /* Calls that can fail since the last reset. */                                                                    \
    X(uint64_t, fallible_count, (void), ())                                                                            \
    /* Counts and log to nothing. Failures, completion, profile and ledger stay. */                                    \
    X(void, reset, (void), ())                                                                                         \
    /* The i-th call since the last reset, the first 65536 of them; null after the last. Prints them. */               \
    X(const char *, logged, (uint64_t i, int *result), (i, result))                                                    \
    X(void, print_log, (FILE * to), (to))                                                                              \
    /* The nth following call of one name (1 = the next) returns result and does nothing; nth < 0: every call; 0:      \
       none. Where it would have put a handle is what is none. Returns 0 for a name that is unknown or returns no      \
       VkResult. */                                                                                                    \
    X(int, fail, (const char *call, int nth, int result), (call, nth, result))                                         \
    /* The same for the nth call that can fail, whatever its name, with the choice-th of the errors that the           \
       specification allows it. for_good: all later calls of that name fail too. nth 0: none. Either way a device      \
       whose call returned VK_ERROR_DEVICE_LOST is lost from then on: its work ends undone, and each call that may say \
       so does. */                                                                                                     \
    X(void, fail_nth, (int nth, int choice, int for_good), (nth, choice, for_good))                                    \
    /* From the nth following submit on (1 = the next), the device is lost. in_flight: that submit still succeeds, and \
       its fence tells. */                                                                                             \
    X(void, lose, (int nth_submit, int in_flight), (nth_submit, in_flight))                                            \
    /* From its loss on, a device's timelines say UINT64_MAX and waits for them succeed, as some drivers' do. Until    \
       mock_clear. */                                                                                                  \
    X(void, lost_says_done, (void), ())                                                                                \
    /* Barriers recorded since the last reset that have all of these bits. */                                          \
    X(uint64_t, barriers, (uint32_t from_stages, uint32_t from_accesses, uint32_t to_stages, uint32_t to_accesses),    \
      (from_stages, from_accesses, to_stages, to_accesses))                                                            \
    /* Calls failed since mock_clear; the first of them, its result, how many errors it may return. */                 \
    X(uint64_t, failed, (void), ())                                                                                    \
    X(const char *, failed_call, (void), ())                                                                           \
    X(int, failed_result, (void), ())                                                                                  \
    X(int, failed_choices, (void), ())                                                                                 \
    /* Times a call was failed since the process began; -1: it cannot fail, or is unknown. */                          \
    X(int64_t, ever_failed, (const char *call), (call))                                                                \
    /* Forgets failures; a lost device stays lost. */                                                                  \
    X(void, clear, (void), ())                                                                                         \
    /* When submissions finish (MockCompletion). */                                                                    \
    X(void, completion, (int when, uint32_t polls), (when, polls))                                                     \
    /* Finishes the n oldest unfinished submissions, 0: all. Returns how many it finished. */                          \
    X(uint64_t, finish, (uint64_t n), (n))                                                                             \
    X(uint64_t, pending, (void), ())                                                                                   \
    /* Objects made and not destroyed: "VkBuffer", ..., "" for all; -1: unknown type. Bytes of device memory. */       \
    X(int64_t, live, (const char *type), (type))                                                                       \
    X(uint64_t, allocated_bytes, (void), ())                                                                           \
    /* Faults of the application found so far, and the first in words ("" when there is none); forgets them. */        \
    X(uint64_t, wrong_uses, (void), ())                                                                                \
    X(const char *, wrong_use, (void), ())                                                                             \
    X(void, forgive, (void), ())                                                                                       \
    /* What a dispatch of kernels runs whose entry point's name contains `name`; null: nothing. */                     \
    X(void, kernel, (const char *name, MockKernel kernel), (name, kernel))                                             \
    /* Prints the counts that are not 0 and what is alive. */                                                          \
    X(void, print, (FILE * to), (to))

#ifdef MOCK_IMPLEMENTATION

extern "C" {
#define X(result, name, parameters, arguments) __attribute__((visibility("default"))) result mock_##name parameters;
MOCK_FUNCTIONS(X)
#undef X
}

#else

// The test's side: mock_count(...) and the rest as plain functions, looked up in the mock's file when first called.
inline void *mock_file() {
    static void *file = [] {
        const char *path = getenv("HV_MOCK");
        void *opened = path ? dlopen(path, RTLD_NOW) : nullptr;
        if (!opened) {
            fprintf(stderr, "mock.h: HV_MOCK does not name the mock driver: %s\n", path ? dlerror() : "unset");
            abort();
        }
        return opened;
    }();
    return file;
}

#define X(result, name, parameters, arguments)                                                                         \
    inline result mock_##name parameters {                                                                             \
        static auto *function = (result(*) parameters)dlsym(mock_file(), "mock_" #name);                               \
        return function arguments;                                                                                     \
    }
MOCK_FUNCTIONS(X)
#undef X

#endif
#endif
