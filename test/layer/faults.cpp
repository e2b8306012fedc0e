// faults.cpp: failures by number over all calls that can fail, a lost device, and the log.
//
// None of this runs unless a test asked for it: the layer must not lock where the runtime does not.
//
// Which results a call may return stands in Vulkan's registry, as the mock driver has it (test/mock/make_calls.py). A
// driver whose device is lost has stopped working; the real one behind this layer has not, so it is let come to an end
// before the loss is told: what the program then destroys is no longer in use.

#include <cstring>
#include <mutex>

#define HV_COUNT_LAYER_IMPLEMENTATION
#include "count_layer.h"
#include "state.h"

namespace hv_layer {

namespace {

struct Registered {
    const char *name;
    std::vector<VkResult> errors;
};
#define LAYER_LIST(...) __VA_ARGS__
const std::vector<Registered> &registry = *new std::vector<Registered>{
#define MOCK_CALL(name, version, extension, errors, written) {#name, std::vector<VkResult>{LAYER_LIST errors}},
#include "calls.inc"
};

std::mutex fault_mutex;
const std::vector<VkResult> *errors_of_call[kCallCount];
bool looked_up = false;

std::atomic<bool> armed, logging;

int countdown = 0, choice = 0;
bool for_good = false;
int lose_countdown = 0;
Call first_call;
VkResult first_result = VK_SUCCESS;
bool any = false;
Call good_call = kCallCount;  // fails from now on
VkResult good_result;
int64_t ever[kCallCount];

constexpr size_t kLogged = 65536;
std::vector<std::pair<Call, VkResult>> &log_entries = *new std::vector<std::pair<Call, VkResult>>;

const std::vector<VkResult> &errors_of(Call call) {
    static const std::vector<VkResult> none;
    if (!looked_up) {
        looked_up = true;
        for (int i = 0; i < kCallCount; i++) {
            for (const Registered &one : registry) {
                if (strcmp(one.name, kCallNames[i]) == 0) errors_of_call[i] = &one.errors;
            }
        }
    }
    return errors_of_call[call] ? *errors_of_call[call] : none;
}

bool may_return(Call call, VkResult result) {
    for (VkResult error : errors_of(call)) {
        if (error == result) return true;
    }
    return false;
}

int call_named(const char *name) {
    for (int i = 0; i < kCallCount; i++) {
        if (strcmp(kCallNames[i], name) == 0) return i;
    }
    return -1;
}

}  // namespace

bool take_numbered_failure(Call call, VkResult *result, Next *next) {
    if (!armed.load(std::memory_order_relaxed) && !(next && next->lost.load(std::memory_order_relaxed))) return false;
    std::unique_lock<std::mutex> lock(fault_mutex);
    const std::vector<VkResult> &errors = errors_of(call);
    if (errors.empty()) return false;
    bool fails = false;
    if (call == good_call) {
        *result = good_result;
        fails = true;
    }
    if (countdown > 0 && --countdown == 0) {
        *result = errors[(size_t)choice % errors.size()];
        fails = true;
        if (for_good && *result != VK_ERROR_DEVICE_LOST) {
            good_call = call;
            good_result = *result;
        }
    }
    const bool submits = call == kvkQueueSubmit || call == kvkQueueSubmit2 || call == kvkQueueSubmit2KHR;
    if (submits && lose_countdown > 0 && --lose_countdown == 0) {
        *result = VK_ERROR_DEVICE_LOST;
        fails = true;
    }
    if (!fails && next && next->lost && may_return(call, VK_ERROR_DEVICE_LOST)) {
        *result = VK_ERROR_DEVICE_LOST;
        fails = true;
    }
    if (!fails) return false;
    lock.unlock();
    note_failure(call, *result);
    return true;
}

void lose_device(Next &next) {
    if (!next.device || next.lost.exchange(true)) return;
    ((PFN_vkDeviceWaitIdle)next.call[kvkDeviceWaitIdle])(next.device);
}

void note_failure(Call call, VkResult result) {
    std::lock_guard<std::mutex> lock(fault_mutex);
    if (!any) {
        first_call = call;
        first_result = result;
    }
    any = true;
    ever[call]++;
}

size_t log_call(Call call) {
    if (!logging.load(std::memory_order_relaxed)) return kLogged;
    std::lock_guard<std::mutex> lock(fault_mutex);
    if (log_entries.size() == kLogged) return kLogged;
    log_entries.push_back({call, VK_SUCCESS});
    return log_entries.size() - 1;
}

void log_result(size_t place, Call call, VkResult result) {
    if (place == kLogged) return;
    std::lock_guard<std::mutex> lock(fault_mutex);
    if (place < log_entries.size() && log_entries[place].first == call) log_entries[place].second = result;
}

void reset_log() {
    std::lock_guard<std::mutex> lock(fault_mutex);
    log_entries.clear();
}

void clear_numbered_failures() {
    std::lock_guard<std::mutex> lock(fault_mutex);
    armed = false;
    countdown = lose_countdown = 0;
    for_good = any = false;
    good_call = kCallCount;
    first_result = VK_SUCCESS;
}

}  // namespace hv_layer

using namespace hv_layer;
using Guard = std::lock_guard<std::mutex>;

void hv_layer_fail_nth(int nth, int which, int good) {
    Guard lock(fault_mutex);
    armed = true;
    countdown = nth;
    choice = which;
    for_good = good != 0;
}
void hv_layer_lose(int nth_submit) {
    Guard lock(fault_mutex);
    armed = true;
    lose_countdown = nth_submit;
}
const char *hv_layer_failed_call() {
    Guard lock(fault_mutex);
    return any ? kCallNames[first_call] : "";
}
int hv_layer_failed_result() {
    Guard lock(fault_mutex);
    return first_result;
}
int hv_layer_failed_choices() {
    Guard lock(fault_mutex);
    return any ? (int)errors_of(first_call).size() : 0;
}
int64_t hv_layer_ever_failed(const char *call) {
    Guard lock(fault_mutex);
    const int i = call_named(call);
    return i < 0 || errors_of((Call)i).empty() ? -1 : ever[i];
}
void hv_layer_log(int on) { logging = on != 0; }
const char *hv_layer_logged(uint64_t i, int *result) {
    Guard lock(fault_mutex);
    if (i >= log_entries.size()) return nullptr;
    if (result) *result = log_entries[i].second;
    return kCallNames[log_entries[i].first];
}
