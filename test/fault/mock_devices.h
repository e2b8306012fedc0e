// mock_devices.h: a fixture for tests of the runtime on the mock's devices: each begins with a device of some kind and
// options, and ends with everything given back.

#ifndef HALIDE_VULKAN_FAULT_MOCK_DEVICES_H
#define HALIDE_VULKAN_FAULT_MOCK_DEVICES_H

#include "scenarios.h"

#include <chrono>
#include <ctime>

namespace fault {

class MockDevices : public ::testing::Test {
protected:
    void SetUp() override {
        register_kernels();
        halide_set_error_handler(keep_message);
        signal(SIGALRM, on_alarm);
    }
    void TearDown() override {
        finish();
        for (const std::string &name : set) unsetenv(name.c_str());
        mock_completion(MOCK_AT_ONCE, 0);
    }
    void start(const char *profile, const std::vector<std::pair<std::string, std::string>> &options = {}) {
        finish();
        mock_clear();
        mock_forgive();
        mock_completion(MOCK_AT_ONCE, 0);
        ASSERT_TRUE(mock_profile(profile));
        for (const std::string &name : set) unsetenv(name.c_str());
        set.clear();
        for (const auto &option : options) {
            setenv(option.first.c_str(), option.second.c_str(), 1);
            set.push_back(option.first);
        }
        messages().clear();
    }
    static void finish() {
        mock_clear();
        EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
        EXPECT_EQ(mock_live(""), 0);
        EXPECT_EQ(mock_wrong_uses(), 0u) << mock_wrong_use();
        mock_forgive();
    }
    static void is_right(Trial &trial) {
        EXPECT_EQ(trial.check({}, 0), "");
        EXPECT_FALSE(trial.any_failed()) << trial.said();
    }
    // Threads that finish what is submitted after a while, as a slow GPU does.
    static std::thread finish_after(int milliseconds) {
        return std::thread([milliseconds] {
            std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
            mock_completion(MOCK_AT_ONCE, 0);
        });
    }
    static double processor_seconds() {
        timespec t;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
    }
    static uint64_t looks() { return mock_count("vkGetFenceStatus") + mock_count("vkGetSemaphoreCounterValue"); }
    static uint64_t waits() { return mock_count("vkWaitForFences") + mock_count("vkWaitSemaphores"); }

    std::vector<std::string> set;
};

}  // namespace fault

#endif
