// option_scenarios.h: scenarios for the calls that only an option brings: a trace, the pipeline cache on disk, fences
// that are used over again.
//
// A trace or a cache that fails costs what it was for, and nothing else: each step succeeds, the results are right, and
// one message says what went wrong, in the trace or by halide_print. These scenarios end with the release, since much
// of it is done there; a run that failed before leaves that to the sweep.

#ifndef HALIDE_VULKAN_FAULT_OPTION_SCENARIOS_H
#define HALIDE_VULKAN_FAULT_OPTION_SCENARIOS_H

#include "scenarios.h"
#include "scratch.h"

#include <fstream>

extern "C" void halide_vulkan_set_trace_file(const char *name);

namespace fault {

inline std::string content_of(const fs::path &path) {
    std::ifstream stream(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
}
inline bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

// Calls whose failure is none of the user's business, unless it is the loss of the device.
inline bool is_harmless(const std::string &call) {
    for (const char *one :
         {"vkGetPhysicalDeviceCalibrateableTimeDomainsEXT", "vkGetCalibratedTimestampsEXT", "vkCreateQueryPool",
          "vkGetQueryPoolResults", "vkSetDebugUtilsObjectNameEXT", "vkGetPipelineCacheData", "vkMergePipelineCaches"}) {
        if (call == one) return true;
    }
    return false;
}

// False: something failed, and there is no more to be seen of this run.
inline bool release_in_order(Trial &run) {
    if (run.any_failed()) return false;
    const int code = halide_vulkan_device_release(nullptr);
    run.expect(code == 0, "release returned " + std::to_string(code));
    return true;
}

// What the trace says of a call that failed while it was written. A name that was refused is only a name.
inline void expect_in_trace(Trial &run, const fs::path &path) {
    const std::string call = mock_failed() ? mock_failed_call() : "";
    std::string part;
    if (call == "vkGetPhysicalDeviceCalibrateableTimeDomainsEXT")
        part = "this device's times are estimated";
    else if (call == "vkGetCalibratedTimestampsEXT")
        part = "vkGetCalibratedTimestamps failed with VK_";
    else if (call == "vkCreateQueryPool" || call == "vkGetQueryPoolResults")
        part = call + " failed with VK_";
    else
        return;
    const std::string text = content_of(path);
    run.expect(contains(text, part), "the trace does not say that " + call + " failed");
    run.expect(!text.empty() && text[0] == '[' && contains(text.substr(text.size() - 2), "]"), "the trace is cut off");
}

// Each run has a file of its own, so that what it holds is of this run.
inline void traced(Trial &run) {
    static int runs = 0;
    const fs::path path = Scratch::folder() / (runs++ % 2 ? "one.json" : "other.json");
    halide_vulkan_set_trace_file(path.c_str());
    small_round_trip(run);
    syncs(run);
    if (release_in_order(run)) expect_in_trace(run, path);
    halide_vulkan_set_trace_file("");
}

inline fs::path cache_folder() { return Scratch::folder() / "cache"; }
inline fs::path cache_file() {
    for (const auto &one : fs::directory_iterator(cache_folder())) {
        if (one.path().extension() == ".cache") return one.path();
    }
    return {};
}
inline void empty_cache_folder() {
    fs::remove_all(cache_folder());
    fs::create_directory(cache_folder());
}

// A failed call of the cache's is told once; the file is whole, and nothing is left beside it. Returns what was told.
inline size_t expect_good_cache(Trial &run) {
    const std::string call = mock_failed() ? mock_failed_call() : "";
    const std::vector<std::string> printed = Printed::take();
    if (call == "vkGetPipelineCacheData" || call == "vkMergePipelineCaches") {
        run.expect(printed.size() == 1 && contains(printed[0], "pipeline cache: "),
                   "of " + call + " " + std::to_string(printed.size()) + " lines were printed");
    }
    int files = 0;
    for (const auto &one : fs::directory_iterator(cache_folder())) {
        const std::string bytes = content_of(one.path());
        uint64_t size = 0;
        if (bytes.size() >= 128) memcpy(&size, &bytes[16], sizeof(size));
        run.expect(size + 128 == bytes.size(), "the cache's file is torn");
        files++;
    }
    run.expect(files <= 1, "something was left in the cache's folder");
    return printed.size();
}

// Begins with the file of the run before.
inline void cache_on_disk(Trial &run) {
    fresh_kernel(run);
    if (release_in_order(run)) expect_good_cache(run);
}

// While this device works, another process writes what it has compiled.
inline fs::path another_folder() { return Scratch::folder() / "another"; }
inline void compile_in_another(Trial &run) {
    empty_cache_folder();
    fresh_kernel(run);
    if (!release_in_order(run)) return;
    fs::remove_all(another_folder());
    fs::rename(cache_folder(), another_folder());
    empty_cache_folder();
}
inline void merged_cache(Trial &run) {
    empty_cache_folder();
    fresh_kernel(run);
    fs::copy(another_folder(), cache_folder());
    const uintmax_t before = fs::file_size(cache_file());
    if (!release_in_order(run)) return;
    const bool told = expect_good_cache(run) > 0;
    const uintmax_t after = fs::file_size(cache_file());
    run.expect(after > before || told, "what was compiled was not merged in: " + std::to_string(after) + " bytes");
}

// More submissions than the ring has slots, so that each fence is used again.
inline void many_submissions(Trial &run) { launches_in_a_row(run, 20); }

inline std::vector<Scenario> option_scenarios() {
    using Options = std::vector<std::pair<std::string, std::string>>;
    const Options trace = {{"HL_VK_FLUSH", "count"}, {"TRACE", ""}};
    fs::create_directory(cache_folder());
    const Options cache = {{"HL_VK_FLUSH_THREAD", "0"}, {"HL_VK_PIPELINE_CACHE", cache_folder().string()}};
    const Options fences = {{"HL_VK_FLUSH", "always"}, {"HL_VK_SYNC", "fence"}};
    return {
        {"Traced", "h200", trace, MOCK_AFTER_POLLS, 2, nullptr, traced},
        {"TracedWithoutCalibration", "plain", trace, MOCK_AFTER_POLLS, 2, nullptr, traced},
        {"CacheOnDisk", "plain", cache, MOCK_AFTER_POLLS, 2, nullptr, cache_on_disk},
        {"MergedCache", "plain", cache, MOCK_AFTER_POLLS, 2, compile_in_another, merged_cache},
        {"ManySubmissions", "plain", fences, MOCK_AFTER_POLLS, 2, nullptr, many_submissions},
    };
}

inline std::vector<Scenario> all_scenarios() {
    std::vector<Scenario> all = scenarios();
    for (Scenario &s : option_scenarios()) all.push_back(std::move(s));
    return all;
}

// Those that tell something about a real driver.
inline std::vector<Scenario> for_a_driver(const std::vector<Scenario> &all) {
    std::vector<Scenario> some;
    for (const Scenario &s : all) {
        for (const char *name : {"FirstUse",     "Launch",          "Batch",       "LargeCopies",
                                 "DeviceCopies", "OverlappingCopy", "Crops",       "BouncedCrop",
                                 "FreeInFlight", "Specializations", "Trim",        "ReleaseWithWorkInFlight",
                                 "TwoThreads",   "NativeHandle",    "FreshKernel", "BlockingWaitsForFences",
                                 "Traced",       "CacheOnDisk",     "MergedCache", "ManySubmissions"}) {
            if (s.name == name) some.push_back(s);
        }
    }
    return some;
}

}  // namespace fault

#endif
