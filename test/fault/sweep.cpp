// The failure sweep: whatever call fails, at whatever time, once or for good, the program gets the right error from the
// right call, and nothing else happens.
//
// For each scenario and for N = 1, 2, ... until a run meets no failure: the Nth Vulkan call that can fail does, with
// each result that the specification allows it (mock.h), once and for good; then the Nth host allocation; then the
// device is lost at the Nth submit, at once or while that submit is in flight. After each run: the scenario works on
// the same device, nothing is left behind after device_release, nothing was destroyed twice or used when it was gone,
// and a lost device was told to every call without asking the driver again, until the release.
//
// With HV_FAULT_ON_LAYER the same is done through the fault layer in front of a real driver: then it does not rest on
// the mock's idea of a driver alone. There a context takes some 30 ms to make, so `make test` has EachCall (each call
// with each result, but not at each place) and `make nightly` the whole.
//
// Afterwards the sweep is held to its own claim: every function in vulkan_api.def that can fail was failed, with each
// result.

#include "option_scenarios.h"

#include <cstring>
#include <cstdlib>
#include <map>
#include <set>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

namespace fault {
namespace {

// Far more than any run takes: the machine may be busy with others.
constexpr unsigned kSecondsToHang = 300;
// A scenario that is wrong is wrong in hundreds of runs; these are printed.
constexpr int kPrinted = 6;

enum class What { vulkan_call, host_allocation, submit };

struct Attempt {
    What what;
    int nth;
    int choice;     // of the results that the call may return
    bool for_good;  // of a lost submit: in flight
};

void set_options(const Scenario &s, bool on) {
    for (const auto &option : s.options) {
        if (option.first == "LAYER")
            halide_vulkan_set_layer_names(on ? option.second.c_str() : "");
        else if (option.first == "TRACE")
            halide_vulkan_set_trace_file("");  // the scenario names the file
        else if (on)
            setenv(option.first.c_str(), option.second.c_str(), 1);
        else
            unsetenv(option.first.c_str());
    }
}

// Whether several threads call the driver: of the caller's, or the flusher's, which nothing then switches off.
bool has_threads(const Scenario &s) { return s.options.empty(); }

// Whether there is anything to be printed: of a trace or a cache that could not be.
bool may_print(const Scenario &s) {
    for (const auto &option : s.options) {
        if (option.first == "TRACE" || option.first == "HL_VK_PIPELINE_CACHE") return true;
    }
    return false;
}

// Of each call, the results it was failed with, and how many it may return.
struct Failed {
    std::set<int> results;
    int choices = 0;
};
std::set<std::string> &calls_made() {
    static std::set<std::string> &it = *new std::set<std::string>;
    return it;
}
std::map<std::string, Failed> &failed_calls() {
    static std::map<std::string, Failed> &it = *new std::map<std::string, Failed>;
    return it;
}

class Sweep {
public:
    explicit Sweep(const Scenario &scenario) : s(scenario) {
        register_kernels();
        halide_set_error_handler(keep_message);
        halide_set_custom_print(Printed::keep);
        signal(SIGALRM, on_alarm);
        release();
        EXPECT_TRUE(mock_profile(s.profile.c_str())) << s.profile;
        mock_clear();
        mock_forgive();
        mock_completion(s.completion, s.polls);
        set_options(s, true);
    }
    ~Sweep() {
        alarm(0);
        release();
        set_options(s, false);
        mock_clear();
        HostMemory::get().fail(0, false);
        mock_completion(MOCK_AT_ONCE, 0);
    }

    // What it costs in kept host allocations (records of kernels) when nothing fails.
    bool works_without_failures() {
        for (int i = 0; i < 2; i++) {
            const uint64_t before = HostMemory::get().live();
            Trial run;
            if (s.prepare) s.prepare(run);
            mock_reset();
            s.body(run);
            made = fallible_calls_made();
            calls_made().insert(made.begin(), made.end());
            const std::string wrong = run.check({}, 0);
            release();
            const uint64_t after = HostMemory::get().live();
            kept = after > before ? after - before : 0;
            if (wrong.empty() && run.all_right() && left_behind().empty()) continue;
            ADD_FAILURE() << s.name << " without a failure: " << wrong << run.said() << left_behind();
            return false;
        }
        return true;
    }

    // Returns whether anything failed. `choices`: of the call that did.
    bool attempt(const Attempt &a, int *choices) {
        snprintf(now_running(), 512, "%s, %s %d, choice %d, %s", s.name.c_str(), kind(a), a.nth, a.choice,
                 a.for_good ? "for good" : "once");
        alarm(kSecondsToHang);
        const uint64_t before = HostMemory::get().live();
        std::string wrong;
        if (s.prepare) {
            Trial run;
            s.prepare(run);
            if (!run.check({}, 0).empty() || !run.all_right()) wrong += "\n  prepare: " + run.said();
        }
        mock_clear();
        Printed::take();
        HostMemory::get().fail(0, false);
        switch (a.what) {
        case What::vulkan_call: mock_fail_nth(a.nth, a.choice, a.for_good); break;
        case What::host_allocation: HostMemory::get().fail(a.nth, a.for_good); break;
        case What::submit: mock_lose(a.nth, a.for_good); break;
        }
        Trial run;
        s.body(run);
        const bool driver_failed = mock_failed() > 0, host_failed = HostMemory::get().failed() > 0;
        const std::string call = mock_failed_call();
        const int result = mock_failed_result();
        *choices = mock_failed_choices();
        if (driver_failed) {
            Failed &one = failed_calls()[call];
            one.results.insert(result);
            one.choices = *choices;
        }
        mock_clear();
        HostMemory::get().fail(0, false);

        was_loss = driver_failed && result == VK_ERROR_DEVICE_LOST;
        const bool lost = driver_failed && result == VK_ERROR_DEVICE_LOST && call != "vkCreateDevice";
        std::vector<std::string> parts = {"were lost", "the device was lost"};
        if (driver_failed) parts.push_back(call + " failed with VK_");
        // The loader looks at devices and their extensions once more inside vkCreateDevice.
        if (driver_failed && call.rfind("vkEnumerate", 0) == 0) parts.push_back("vkCreateDevice failed with VK_");
        // A lost device says so to whoever asks, and another thread may hear it first, in a call of its own.
        if (lost && has_threads(s)) parts.push_back(" failed with VK_ERROR_DEVICE_LOST");
        if (host_failed) parts.push_back("out of host memory");
        if (host_failed) parts.push_back("VK_ERROR_OUT_OF_HOST_MEMORY");
        const bool memory = host_failed || (driver_failed && is_out_of_memory(result));
        wrong += run.check(parts, lost ? kDeviceError : memory ? kOutOfMemory : 0);
        if (driver_failed && is_harmless(call) && !lost && run.any_failed())
            wrong += "\n  which is none of the user's business";
        const std::vector<std::string> printed_lines = Printed::take();
        if (printed_lines.size() > (may_print(s) ? 1 : 0)) wrong += "\n  printed: " + printed_lines.back();
        if (lost && run.any_failed()) wrong += is_latched();
        if (lost)
            release(&wrong);
        else if (has_threads(s) && run.any_failed())
            wrong += take_what_the_flusher_met(parts);

        Trial again;
        s.body(again);
        const std::string later = again.check({}, 0);
        if (!later.empty() || !again.all_right()) wrong += "\n  the next run:" + later + "\n    " + again.said();
        release(&wrong);
        wrong += left_behind();
        const uint64_t after = HostMemory::get().live();
        if (after > before + 2 * kept) wrong += "\n  " + std::to_string(after - before) + " host allocations are left";
        alarm(0);
        if (!wrong.empty() && printed++ < kPrinted) {
            ADD_FAILURE() << now_running() << (driver_failed ? ": " + call + " returned " + std::to_string(result) : "")
                          << wrong;
        }
        runs++;
        return driver_failed || host_failed;
    }

    void all(What what, bool with_for_good) {
        if (!works_without_failures()) return;
        bool failed = true;
        for (int nth = 1; failed && nth < 5000; nth++) {
            int choices = 1;
            for (int choice = 0; choice < choices && failed; choice++) {
                for (int good = 0; good < (with_for_good ? 2 : 1); good++) {
                    int seen = 1;
                    failed = attempt({what, nth, choice, good != 0}, &seen);
                    if (!failed) break;
                    if (was_loss) good = 1;  // a lost device is lost for good
                    if (what == What::vulkan_call) choices = std::max(choices, seen);
                }
            }
        }
        EXPECT_FALSE(failed) << s.name << ": no end";
        EXPECT_LE(printed, kPrinted) << "of " << runs << " runs, " << printed << " were wrong";
        ::testing::Test::RecordProperty("runs", runs);
    }

    // Each call that this scenario makes, with each result that it has not been failed with before: at its first place,
    // once, and for good with the first of them.
    void each_call() {
        if (!works_without_failures()) return;
        std::set<std::string> seen;
        for (size_t i = 0; i < made.size(); i++) {
            if (!seen.insert(made[i]).second) continue;
            int choices = 1;
            for (int choice = 0; choice < choices; choice++) {
                const Failed &before = failed_calls()[made[i]];
                if (before.choices && (int)before.results.size() == before.choices) break;
                int got = 1;
                if (!attempt({What::vulkan_call, (int)i + 1, choice, false}, &got)) break;
                choices = std::max(choices, got);
                if (choice == 0) attempt({What::vulkan_call, (int)i + 1, choice, true}, &got);
            }
        }
        EXPECT_LE(printed, kPrinted) << "of " << runs << " runs, " << printed << " were wrong";
        ::testing::Test::RecordProperty("runs", runs);
    }

private:
    const Scenario &s;
    std::vector<std::string> made;  // the fallible calls of a run without failures
    uint64_t kept = 0;
    int printed = 0, runs = 0;
    bool was_loss = false;

    static std::vector<std::string> fallible_calls_made() {
        std::vector<std::string> calls;
        for (uint64_t i = 0; const char *call = mock_logged(i, nullptr); i++) {
            if (mock_ever_failed(call) >= 0) calls.push_back(call);
        }
        return calls;
    }
    static const char *kind(const Attempt &a) {
        return a.what == What::vulkan_call ? "call" : a.what == What::submit ? "submit" : "allocation";
    }
    static bool is_out_of_memory(int result) {
        return result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
               result == VK_ERROR_TOO_MANY_OBJECTS;
    }
    // A run that stopped at a call's failure did not come to its device_sync, which is who is told of a submission that
    // the flusher was refused. So the application makes one before it goes on.
    static std::string take_what_the_flusher_met(const std::vector<std::string> &parts) {
        Trial rest;
        rest.failed_before();
        sync(rest);
        return rest.check(parts, 0);
    }
    // Succeeds and says nothing, whatever went wrong before.
    static void release(std::string *wrong = nullptr) {
        messages().clear();
        const int code = halide_vulkan_device_release(nullptr);
        if (!wrong) return;
        if (code) *wrong += "\n  release returned " + std::to_string(code);
        for (const std::string &one : messages()) *wrong += "\n  release said: " + one;
    }
    static std::string left_behind() {
        std::string wrong;
        if (mock_wrong_uses()) wrong += std::string("\n  the driver was misused: ") + mock_wrong_use();
        mock_forgive();
        if (mock_live("")) wrong += "\n  " + std::to_string(mock_live("")) + " Vulkan objects are left";
        if (HostMemory::get().wrong_frees()) wrong += "\n  host memory was freed twice";
        return wrong;
    }
    // A lost device is told to the next call, and the next, without a question to the driver.
    static std::string is_latched() {
        std::string first;
        for (int i = 0; i < 2; i++) {
            messages().clear();
            mock_reset();
            const int code = halide_device_sync_global(nullptr, vulkan());
            if (code != kDeviceError) return "\n  sync after the loss returned " + std::to_string(code);
            if (messages().size() != 1 || messages()[0].find("lost") == std::string::npos)
                return "\n  sync after the loss said " + std::to_string(messages().size()) + " messages";
            if (i > 0 && messages()[0] != first) return "\n  the loss has another cause now: " + messages()[0];
            if (mock_count_prefix("vk")) return "\n  the driver was asked after the loss";
            first = messages()[0];
        }
        messages().clear();
        return "";
    }
};

class FaultSweep : public ::testing::TestWithParam<Scenario> {};

TEST_P(FaultSweep, VulkanCalls) { Sweep(GetParam()).all(What::vulkan_call, true); }
TEST_P(FaultSweep, EachCall) { Sweep(GetParam()).each_call(); }
TEST_P(FaultSweep, HostAllocations) { Sweep(GetParam()).all(What::host_allocation, true); }
TEST_P(FaultSweep, LostDevice) { Sweep(GetParam()).all(What::submit, true); }

#ifdef HV_FAULT_ON_LAYER
const std::vector<Scenario> swept = for_a_driver(all_scenarios());
#else
const std::vector<Scenario> swept = all_scenarios();
#endif
INSTANTIATE_TEST_SUITE_P(, FaultSweep, ::testing::ValuesIn(swept), [](const auto &info) { return info.param.name; });

// After the last test, where HV_FAULT_COVERAGE asks for it: every call of vulkan_api.def that can fail was failed, with
// each result that it may return.
class Coverage : public ::testing::Environment {
public:
    void TearDown() override {
        if (!getenv("HV_FAULT_COVERAGE")) return;
        static const char *const calls[] = {
#define HV_GLOBAL(name) #name,
#define HV_INSTANCE(name) #name,
#define HV_INSTANCE_OPTIONAL(name) #name,
#define HV_DEVICE(name) #name,
#define HV_DEVICE_OPTIONAL(name) #name,
#include "vulkan_api.def"
        };
        int can_fail = 0, all_results = 0;
        for (const char *call : calls) {
            const int64_t times = mock_ever_failed(call);
            if (times < 0) continue;
#ifdef HV_FAULT_ON_LAYER
            // No layer sees calls without an instance, and no device is all devices.
            if (!calls_made().count(call)) {
                printf("%-48s not made\n", call);
                continue;
            }
#endif
            const Failed &one = failed_calls()[call];
            const bool complete = one.choices && (int)one.results.size() == one.choices;
            can_fail++;
            all_results += complete;
            printf("%-48s failed %lld times, with %zu of %d results\n", call, (long long)times, one.results.size(),
                   one.choices);
            EXPECT_TRUE(complete) << call;
        }
        printf("%d of %d calls of vulkan_api.def that can fail were failed with each result\n", all_results, can_fail);
    }
};
::testing::Environment *const coverage = ::testing::AddGlobalTestEnvironment(new Coverage);

}  // namespace
}  // namespace fault
