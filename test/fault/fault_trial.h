// fault_trial.h: one run of a scenario while something fails, and what must hold of it.
//
// A scenario is a sequence of steps, each one call of Halide's interface. Of every step is kept what it returned, what
// halide_error was told meanwhile, and whether the mock driver (or host memory) failed something during it. From that
// Trial::check decides, without knowing the scenario:
//   - before the failure all steps succeed;
//   - a step that reports an error does so with one message, which names the call that failed, or says that contents or
//     the device were lost; out of memory and a lost device have their own codes;
//   - a step that returns success says nothing;
//   - nothing else, a free for example, says anything.
// Whether the results of successful steps are right, the scenario checks with Trial::expect.
//
// Thread rule: each thread of a scenario has a Trial of its own; errors arrive on the thread that made the call.

#ifndef HALIDE_VULKAN_FAULT_TRIAL_H
#define HALIDE_VULKAN_FAULT_TRIAL_H

#include "fault_kernels.h"
#include "fault_memory.h"

#include "HalideBuffer.h"
#include "HalideRuntimeVulkan.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <unistd.h>

namespace fault {

using Ints = Halide::Runtime::Buffer<int32_t, 1>;

// HalideRuntime.h's codes that an error is known by.
constexpr int kOutOfMemory = halide_error_code_out_of_memory;
constexpr int kDeviceError = halide_error_code_gpu_device_error;

// Stands for an error of a call that returns none, but null.
constexpr int kNoHandle = -1000;

inline const halide_device_interface_t *vulkan() { return halide_vulkan_device_interface(); }

// Messages of this thread since they were last taken.
inline std::vector<std::string> &messages() {
    static thread_local std::vector<std::string> list;
    return list;
}
inline void keep_message(void *, const char *message) { messages().push_back(message); }

// What the runtime printed, on any thread, since it was last taken.
class Printed {
public:
    static void keep(void *, const char *text) {
        // The loader's, through a debug messenger: of the call that failed, and of a function of its own.
        if (strncmp(text, "Vulkan: vk", 10) == 0 || strncmp(text, "Vulkan: loader_", 15) == 0) return;
        const std::lock_guard<std::mutex> lock(mutex());
        lines().push_back(text);
    }
    static std::vector<std::string> take() {
        const std::lock_guard<std::mutex> lock(mutex());
        std::vector<std::string> taken;
        taken.swap(lines());
        return taken;
    }

private:
    static std::mutex &mutex() {
        static std::mutex &it = *new std::mutex;
        return it;
    }
    static std::vector<std::string> &lines() {
        static std::vector<std::string> &it = *new std::vector<std::string>;
        return it;
    }
};

// What a hang would be told by: which run it was.
inline char *now_running() {
    static char text[512];
    return text;
}
inline void on_alarm(int) {
    const char *text = now_running();
    const ssize_t ignored = write(2, text, strlen(text)) + write(2, ": hangs\n", 8);
    (void)ignored;
    abort();
}

struct Step {
    std::string name;
    int code;
    std::vector<std::string> said;
    bool failed;   // something was failed meanwhile
    bool earlier;  // or before, since the run began; a thread of the runtime's may have met it
};

class Trial {
public:
    Trial() : at_start(failures()) { messages().clear(); }

    // Makes the call, unless an earlier one failed and this scenario stops there, as a pipeline would. True on success.
    template<typename Call>
    bool step(const char *name, Call &&call) {
        if (stopped) return false;
        take_stray(name);
        const uint64_t before = failures();
        const int code = call();
        steps.push_back({name, code, messages(), failures() > before, before > at_start});
        messages().clear();
        stopped = code != 0;
        return code == 0;
    }
    // After an error that the scenario goes on from.
    void go_on() { stopped = false; }

    void expect(bool right, const std::string &what) {
        if (!right) wrong.push_back(what);
    }
    // Downloads, and compares with value(i).
    template<typename Value>
    void expect_contents(const char *name, Ints &buffer, Value value) {
        if (stopped) return;
        buffer.set_host_dirty(false);
        buffer.set_device_dirty();
        if (!step(name, [&] { return buffer.copy_to_host(); })) {
            expect(buffer.device_dirty(), std::string(name) + " failed, and the buffer claims fresh host data");
            buffer.set_device_dirty(false);
            return;
        }
        for (int i = buffer.min(0); i < buffer.min(0) + buffer.width(); i++) {
            if (buffer(i) == value(i)) continue;
            expect(false, std::string(name) + ": element " + std::to_string(i) + " is " + std::to_string(buffer(i)) +
                              " instead of " + std::to_string(value(i)));
            return;
        }
    }

    // What another thread did belongs to this run.
    void join(const Trial &other) {
        steps.insert(steps.end(), other.steps.begin(), other.steps.end());
        wrong.insert(wrong.end(), other.wrong.begin(), other.wrong.end());
        elsewhere = true;
    }
    // What this run is told of may have failed before it began.
    void failed_before() { elsewhere = true; }

    bool any_failed() const {
        for (const Step &s : steps) {
            if (s.code) return true;
        }
        return false;
    }
    bool all_right() const { return !any_failed() && wrong.empty(); }

    // `parts`: what a message must contain one of. `code`: what an error at the failure must have, 0: any.
    // Returns what is wrong, "" for nothing.
    std::string check(const std::vector<std::string> &parts, int code) {
        take_stray("the end");
        for (const Step &s : steps) {
            if (s.code == 0) {
                if (!s.said.empty()) wrong.push_back(s.name + " succeeded and said: " + s.said[0]);
            } else if (!s.failed && !s.earlier && !elsewhere) {
                wrong.push_back(s.name + " returned " + std::to_string(s.code) +
                                " before anything had failed: " + (s.said.empty() ? "" : s.said[0]));
            } else {
                check_message(s, parts);
                // With several threads the failed call may be another's; this step then tells what was lost by it.
                const bool of_another =
                    elsewhere && !s.said.empty() && s.said[0].find("were lost") != std::string::npos;
                if (s.failed && !s.earlier && code && s.code != code && !is_wrappers(s.code) && !of_another)
                    wrong.push_back(s.name + " returned " + std::to_string(s.code) + " instead of " +
                                    std::to_string(code) + ": " + (s.said.empty() ? "" : s.said[0]));
            }
        }
        std::string all;
        for (const std::string &one : wrong) all += "\n  " + one;
        return all;
    }

    // All messages, for tests that look at them.
    std::string said() const {
        std::string all;
        for (const Step &s : steps) {
            for (const std::string &one : s.said) all += "[" + one + "]";
        }
        return all;
    }
    const std::vector<Step> &all() const { return steps; }

private:
    static uint64_t failures() { return mock_failed() + HostMemory::get().failed(); }

    // Halide's own functions around a device interface have one code for each, whatever their callee returned.
    static bool is_wrappers(int code) {
        return code == halide_error_code_device_malloc_failed || code == halide_error_code_copy_to_device_failed ||
               code == halide_error_code_copy_to_host_failed || code == halide_error_code_device_buffer_copy_failed ||
               code == halide_error_code_device_sync_failed || code == kNoHandle;
    }
    void take_stray(const std::string &before) {
        for (const std::string &one : messages())
            wrong.push_back("said outside of a step, before " + before + ": " + one);
        messages().clear();
    }
    void check_message(const Step &s, const std::vector<std::string> &parts) {
        // Halide's own halide_buffer_copy adds a line of its own to what its callee said.
        std::vector<std::string> said;
        for (const std::string &one : s.said) {
            if (one.find("halide_buffer_copy") == std::string::npos) said.push_back(one);
        }
        if (said.size() != 1) {
            std::string all;
            for (const std::string &one : said) all += "\n    " + one;
            wrong.push_back(s.name + " returned " + std::to_string(s.code) + " with " + std::to_string(said.size()) +
                            " messages" + all);
            return;
        }
        if (said[0].find("Vulkan: ") != said[0].rfind("Vulkan: "))
            wrong.push_back(s.name + " said twice whose message it is: " + said[0]);
        for (const std::string &part : parts) {
            if (said[0].find(part) != std::string::npos) return;
        }
        wrong.push_back(s.name + " said what names no failed call: " + said[0]);
    }

    const uint64_t at_start;
    std::vector<Step> steps;
    std::vector<std::string> wrong;
    bool stopped = false;
    bool elsewhere = false;  // what a step tells of may have failed outside of it
};

}  // namespace fault

#endif
