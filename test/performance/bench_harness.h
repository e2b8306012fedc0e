// bench_harness.h: how a row of the benchmark is measured, checked and reported.
//
// A row is one operation, done N times and closed by one device_sync; its figure is the time of both divided by N. The
// sync belongs to the row: what a backend has only queued must not be paid by the row after it. N is fixed per row and
// the same for every backend, so the share of that one sync is the same too. Each row runs once to warm up (compile,
// allocate, fill caches) and then a fixed number of times; the median is the figure, the smallest and the largest show
// how far to trust it. A row carries a check of its results that runs after the last repetition: a fast wrong answer
// fails the program. There is no assertion about time.
//
// "cpu" is the processor time of the calling thread for the N operations alone, without the closing sync: what the
// caller loses even if the device is never waited for. (On a software device a row may do the device's work itself.)
//
// Thread rule: the harness runs on one thread; a row that starts others joins them before it returns.

#ifndef HALIDE_VULKAN_BENCH_HARNESS_H
#define HALIDE_VULKAN_BENCH_HARNESS_H

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <regex>
#include <string>
#include <vector>

namespace bench {

inline double seconds(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

struct Row {
    std::string key;                 // short and stable: what --rows and the JSON file go by
    std::string title;               // as in the table
    int count;                       // N
    std::function<void(int)> run;    // does the operation N times
    std::function<void()> sync;      // waits until the device has done them
    std::function<bool(int)> check;  // are the results of a run of N right? Called once, after the last repetition
    clockid_t cpu_clock = CLOCK_THREAD_CPUTIME_ID;  // a row with threads of its own takes the process's clock
};

struct Result {
    std::string key, title;
    int count = 0, repetitions = 0;
    double median = 0, smallest = 0, largest = 0;  // microseconds per operation
    double cpu = 0;                                // the caller's processor time, microseconds per operation
    bool right = false;
};

struct Options {
    bool quick = false;          // a tenth of the operations and three repetitions: for a smoke test, not for figures
    bool wait_for_long = false;  // also the row that waits two seconds for one kernel
    bool list = false;
    std::string json;
    std::string rows = ".*";

    int repetitions() const { return quick ? 3 : 9; }
    int scaled(int count) const { return quick ? std::max(1, count / 10) : count; }
    bool wants(const std::string &key) const { return std::regex_search(key, std::regex(rows)); }
};

inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    size_t half = values.size() / 2;
    return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

inline Result measure(const Row &row, const Options &options) {
    Result result;
    result.key = row.key;
    result.title = row.title;
    result.count = options.scaled(row.count);
    result.repetitions = options.repetitions();
    row.run(result.count);
    row.sync();
    std::vector<double> wall, cpu;
    for (int i = 0; i < result.repetitions; i++) {
        double start = seconds(CLOCK_MONOTONIC), cpu_start = seconds(row.cpu_clock);
        row.run(result.count);
        double cpu_end = seconds(row.cpu_clock);
        row.sync();
        double end = seconds(CLOCK_MONOTONIC);
        wall.push_back(1e6 * (end - start) / result.count);
        cpu.push_back(1e6 * (cpu_end - cpu_start) / result.count);
    }
    result.median = median(wall);
    result.smallest = *std::min_element(wall.begin(), wall.end());
    result.largest = *std::max_element(wall.begin(), wall.end());
    result.cpu = median(cpu);
    result.right = row.check(result.count);
    return result;
}

inline void print_head() {
    printf("%-52s %7s %12s %12s %12s %10s\n", "microseconds per operation", "N", "median", "min", "max", "cpu");
}

inline void print_row(const Result &r) {
    printf("%-52s %7d %12.3f %12.3f %12.3f %10.3f%s\n", r.title.c_str(), r.count, r.median, r.smallest, r.largest,
           r.cpu, r.right ? "" : "   WRONG RESULT");
    fflush(stdout);
}

inline std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += (unsigned char)c < 0x20 ? ' ' : c;
    }
    return out + "\"";
}

// What was measured on: names and values that go in front of the rows in the JSON file.
using Facts = std::vector<std::pair<std::string, std::string>>;

inline bool write_json(const std::string &path, const Facts &facts, const std::vector<Result> &results) {
    FILE *file = fopen(path.c_str(), "w");
    if (!file) {
        fprintf(stderr, "cannot write %s\n", path.c_str());
        return false;
    }
    fprintf(file, "{\n");
    for (const auto &[name, value] : facts) fprintf(file, "  %s: %s,\n", quoted(name).c_str(), quoted(value).c_str());
    fprintf(file, "  \"unit\": \"microseconds per operation\",\n  \"rows\": [\n");
    for (size_t i = 0; i < results.size(); i++) {
        const Result &r = results[i];
        fprintf(file,
                "    {\"key\": %s, \"title\": %s, \"count\": %d, \"repetitions\": %d, \"median\": %.4f, "
                "\"min\": %.4f, \"max\": %.4f, \"cpu\": %.4f, \"right\": %s}%s\n",
                quoted(r.key).c_str(), quoted(r.title).c_str(), r.count, r.repetitions, r.median, r.smallest, r.largest,
                r.cpu, r.right ? "true" : "false", i + 1 < results.size() ? "," : "");
    }
    fprintf(file, "  ]\n}\n");
    return fclose(file) == 0;
}

}  // namespace bench

#endif
