// layer_as_mock.h: the fault layer in front of a real driver, under the names of the mock driver's functions.
//
// So the failure sweep is written once. What only a driver could do is left out: the profile is whatever device is
// there, work finishes when it does, kernels are run by the device. Instead of checking each handle, the layer keeps a
// ledger.

#ifndef HALIDE_VULKAN_FAULT_LAYER_AS_MOCK_H
#define HALIDE_VULKAN_FAULT_LAYER_AS_MOCK_H

#include "../layer/count_layer.h"

struct MockBinding {
    uint8_t *bytes;
    uint64_t size;
};
struct MockDispatch {
    const char *kernel;
    uint32_t groups[3], local_size[3];
    const MockBinding *bindings;
    uint32_t binding_count;
    const uint8_t *push;
    const uint32_t *code;
    uint64_t code_words;
};
enum MockCompletion { MOCK_AT_ONCE, MOCK_AFTER_POLLS, MOCK_BY_HAND };

// The layer counts failures since the process began.
inline uint64_t &mock_failures_before() {
    static uint64_t before = 0;
    return before;
}
inline uint64_t mock_failed() { return hv_layer_failed() - mock_failures_before(); }
inline const char *mock_failed_call() { return hv_layer_failed_call(); }
inline int mock_failed_result() { return hv_layer_failed_result(); }
inline int mock_failed_choices() { return hv_layer_failed_choices(); }
inline int64_t mock_ever_failed(const char *call) { return hv_layer_ever_failed(call); }
inline void mock_fail_nth(int nth, int choice, int for_good) { hv_layer_fail_nth(nth, choice, for_good); }
inline void mock_lose(int nth, int) { hv_layer_lose(nth); }
inline void mock_clear() {
    hv_layer_clear();
    hv_layer_limit("pipelineCache.model", 16);  // software drivers keep nothing in a VkPipelineCache
    mock_failures_before() = hv_layer_failed();
}
inline void mock_reset() {
    hv_layer_reset();
    hv_layer_log(1);
}
inline const char *mock_logged(uint64_t i, int *result) { return hv_layer_logged(i, result); }
inline uint64_t mock_count_prefix(const char *prefix) { return hv_layer_count_prefix(prefix); }
inline int64_t mock_live(const char *type) { return *type ? hv_layer_live(type) : hv_layer_left(); }
inline uint64_t mock_wrong_uses() { return hv_layer_wrong_destroys(); }
inline const char *mock_wrong_use() { return "something was destroyed that is not there"; }
inline void mock_forgive() {}
inline int mock_profile(const char *) { return 1; }
inline void mock_completion(int, uint32_t) {}
inline void mock_kernel(const char *, void (*)(const MockDispatch *)) {}

#endif
