// control.cpp: counts, log, failures and completion: the side of mock.h that is not about objects.
//
// Counts are atomics in an array, so that counting costs the "null" profile next to nothing. A failure is asked for by
// name and number, or by number alone over all calls that can fail; it is taken before the call does anything.

#include "state.h"

#include <cstring>

namespace mock {

namespace {

template<typename Function>
struct ReturnsResult : std::false_type {};
template<typename... A>
struct ReturnsResult<VkResult(VKAPI_PTR *)(A...)> : std::true_type {};

}  // namespace

#define MOCK_LIST(...) __VA_ARGS__
const CallInfo kCalls[kCallCount] = {
#define MOCK_CALL(name, version, extension, errors, written)                                                           \
    {#name, version, extension, std::vector<VkResult>{MOCK_LIST errors}, ReturnsResult<PFN_##name>::value},
#include "calls.inc"
};

std::mutex mutex;
std::condition_variable finished_some;
std::atomic<bool> fast;
MockCompletion completion = MOCK_AT_ONCE;
uint32_t completion_polls = 0;
bool lost_says_done = false;

namespace {

const Profile *profile = find_profile("plain");
std::atomic<uint64_t> counts[kCallCount];
uint64_t fallible_calls = 0;

constexpr size_t kLogged = 65536;
struct Logged {
    Call call;
    VkResult result;
};
std::vector<Logged> &log_entries = *new std::vector<Logged>;

// The failures asked for by name. Countdown 0: none; n: the nth call from now; < 0: all.
int countdowns[kCallCount];
VkResult asked[kCallCount];

struct ByNumber {
    int countdown = 0;
    int choice = 0;
    bool for_good = false;
} by_number;

struct Loss {
    int countdown = 0;
    bool in_flight = false;
    bool now = false;
} loss;

uint64_t failed_calls = 0;
Call first_failed;
VkResult first_result = VK_SUCCESS;
int64_t ever[kCallCount];

struct Barrier {
    uint32_t from_stages, from_accesses, to_stages, to_accesses;
};
std::vector<Barrier> &barriers = *new std::vector<Barrier>;

std::vector<std::pair<std::string, MockKernel>> &kernels = *new std::vector<std::pair<std::string, MockKernel>>;

int call_of(const char *name) {
    for (int i = 0; i < kCallCount; i++) {
        if (strcmp(kCalls[i].name, name) == 0) return i;
    }
    return -1;
}

bool can_fail(int call) { return !kCalls[call].errors.empty(); }

bool allows(Call call, VkResult result) {
    for (VkResult error : kCalls[call].errors) {
        if (error == result) return true;
    }
    return false;
}

void set_profile(const Profile *wanted) {
    profile = wanted;
    fast = strcmp(wanted->name, "null") == 0;
}

struct FromEnvironment {
    FromEnvironment() {
        if (const char *name = getenv("HV_MOCK_PROFILE")) {
            const Profile *wanted = find_profile(name);
            if (!wanted) {
                fprintf(stderr, "HV_MOCK_PROFILE: there is no profile '%s'\n", name);
                abort();
            }
            set_profile(wanted);
        }
        if (const char *polls = getenv("HV_MOCK_POLLS")) {
            completion = MOCK_AFTER_POLLS;
            completion_polls = (uint32_t)strtoul(polls, nullptr, 0);
        }
    }
    ~FromEnvironment() {
        const char *path = getenv("HV_MOCK_REPORT");
        FILE *file = path ? fopen(path, "w") : nullptr;
        if (!file) return;
        mock_print(file);
        fclose(file);
    }
} from_environment;

}  // namespace

const Profile &current_profile() { return *profile; }

void note_call(Call call) { counts[call].fetch_add(1, std::memory_order_relaxed); }

void note_result(Call call, VkResult result) {
    if (log_entries.size() < kLogged) log_entries.push_back({call, result});
}

bool take_failure(Call call, VkResult *result, Device *device) {
    if (!can_fail(call)) return false;
    fallible_calls++;
    bool fails = false;
    if (countdowns[call] != 0 && (countdowns[call] < 0 || --countdowns[call] == 0)) {
        *result = asked[call];
        fails = true;
    }
    if (by_number.countdown > 0 && --by_number.countdown == 0) {
        const std::vector<VkResult> &errors = kCalls[call].errors;
        *result = errors[(size_t)by_number.choice % errors.size()];
        fails = true;
        if (by_number.for_good && *result != VK_ERROR_DEVICE_LOST) {
            countdowns[call] = -1;
            asked[call] = *result;
        }
    }
    if (call == kvkQueueSubmit && loss.countdown > 0 && --loss.countdown == 0) {
        if (loss.in_flight)
            loss.now = true;
        else if (device)
            lose(*device);
    }
    const bool says_done = lost_says_done && (call == kvkGetSemaphoreCounterValue || call == kvkWaitSemaphores);
    if (!fails && device && device->lost && !says_done && allows(call, VK_ERROR_DEVICE_LOST)) {
        *result = VK_ERROR_DEVICE_LOST;
        fails = true;
    }
    if (!fails) return false;
    if (*result == VK_ERROR_DEVICE_LOST && device && !device->lost) lose(*device);
    if (failed_calls++ == 0) {
        first_failed = call;
        first_result = *result;
    }
    ever[call]++;
    return true;
}

void note_barrier(uint32_t from_stages, uint32_t from_accesses, uint32_t to_stages, uint32_t to_accesses) {
    barriers.push_back({from_stages, from_accesses, to_stages, to_accesses});
}

bool loses_in_flight() {
    const bool now = loss.now;
    loss.now = false;
    return now;
}

MockKernel find_kernel(const std::string &name) {
    for (const auto &kernel : kernels) {
        if (name.find(kernel.first) != std::string::npos) return kernel.second;
    }
    return nullptr;
}

}  // namespace mock

using namespace mock;
using Guard = std::lock_guard<std::mutex>;

int mock_profile(const char *name) {
    Guard lock(mutex);
    const Profile *wanted = find_profile(name);
    if (wanted) set_profile(wanted);
    return wanted != nullptr;
}

uint64_t mock_count(const char *call) {
    const int index = call_of(call);
    return index < 0 ? UINT64_MAX : counts[index].load();
}
uint64_t mock_count_prefix(const char *prefix) {
    uint64_t all = 0;
    for (int i = 0; i < kCallCount; i++) {
        if (strncmp(kCalls[i].name, prefix, strlen(prefix)) == 0) all += counts[i].load();
    }
    return all;
}
uint64_t mock_fallible_count() {
    Guard lock(mutex);
    return fallible_calls;
}
void mock_reset() {
    Guard lock(mutex);
    for (auto &count : counts) count = 0;
    fallible_calls = 0;
    log_entries.clear();
    barriers.clear();
}
const char *mock_logged(uint64_t i, int *result) {
    Guard lock(mutex);
    if (i >= log_entries.size()) return nullptr;
    if (result) *result = log_entries[i].result;
    return kCalls[log_entries[i].call].name;
}
void mock_print_log(FILE *to) {
    Guard lock(mutex);
    for (const Logged &entry : log_entries) fprintf(to, "%s %d\n", kCalls[entry.call].name, entry.result);
}

int mock_fail(const char *call, int nth, int result) {
    Guard lock(mutex);
    const int index = call_of(call);
    if (index < 0 || !kCalls[index].returns_result) return 0;
    countdowns[index] = nth;
    asked[index] = (VkResult)result;
    return 1;
}
void mock_fail_nth(int nth, int choice, int for_good) {
    Guard lock(mutex);
    by_number.countdown = nth;
    by_number.choice = choice;
    by_number.for_good = for_good != 0;
}
void mock_lose(int nth_submit, int in_flight) {
    Guard lock(mutex);
    loss = {nth_submit, in_flight != 0, false};
}
void mock_lost_says_done() {
    Guard lock(mutex);
    lost_says_done = true;
}
uint64_t mock_barriers(uint32_t from_stages, uint32_t from_accesses, uint32_t to_stages, uint32_t to_accesses) {
    Guard lock(mutex);
    uint64_t count = 0;
    for (const Barrier &b : barriers) {
        count += (b.from_stages & from_stages) == from_stages && (b.from_accesses & from_accesses) == from_accesses &&
                 (b.to_stages & to_stages) == to_stages && (b.to_accesses & to_accesses) == to_accesses;
    }
    return count;
}
uint64_t mock_failed() {
    Guard lock(mutex);
    return failed_calls;
}
const char *mock_failed_call() {
    Guard lock(mutex);
    return failed_calls ? kCalls[first_failed].name : "";
}
int mock_failed_result() {
    Guard lock(mutex);
    return first_result;
}
int mock_failed_choices() {
    Guard lock(mutex);
    return failed_calls ? (int)kCalls[first_failed].errors.size() : 0;
}
int64_t mock_ever_failed(const char *call) {
    Guard lock(mutex);
    const int index = call_of(call);
    return index < 0 || !can_fail(index) ? -1 : ever[index];
}
void mock_clear() {
    Guard lock(mutex);
    for (int &countdown : countdowns) countdown = 0;
    by_number = {};
    loss = {};
    lost_says_done = false;
    failed_calls = 0;
    first_result = VK_SUCCESS;
}

void mock_completion(int when, uint32_t polls) {
    Guard lock(mutex);
    completion = (MockCompletion)when;
    completion_polls = polls;
    if (completion != MOCK_BY_HAND) finish_submissions(0);
}
uint64_t mock_finish(uint64_t n) {
    Guard lock(mutex);
    return finish_submissions(n);
}
uint64_t mock_pending() {
    Guard lock(mutex);
    return pending_submissions();
}

void mock_kernel(const char *name, MockKernel function) {
    Guard lock(mutex);
    for (auto &kernel : kernels) {
        if (kernel.first != name) continue;
        kernel.second = function;
        return;
    }
    kernels.emplace_back(name, function);
}

void mock_print(FILE *to) {
    static const char *const types[] = {
#define X(handle, ours) #handle,
        MOCK_TYPES(X)
#undef X
    };
    for (int i = 0; i < kCallCount; i++) {
        if (counts[i].load()) fprintf(to, "%-48s %llu\n", kCalls[i].name, (unsigned long long)counts[i].load());
    }
    for (const char *type : types) {
        if (mock_live(type)) fprintf(to, "live %-43s %lld\n", type, (long long)mock_live(type));
    }
}
