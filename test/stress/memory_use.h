// memory_use.h: is the memory that a long run takes flat?
//
// Sampled are the process's resident memory, which on a CPU device holds the device memory too, but for the pages of
// files: the system drops parts of libHalide and reads them again as it likes; the bytes that malloc has given out and
// not got back, but for a CPU device's memory; and the bytes of device memory that the driver gave out, as the counting
// layer sees them. The first half of the samples is a warm-up, in which caches and staging grow to their size. Flat
// means: after it the device's largest sample is at most 1 % above the largest of the warm-up's last quarter, and the
// least of the others above their least: what is in flight comes and goes (resident memory by 2 % from one half minute
// to the next, in a soak on a busy machine), and only a leak raises the least.
//
// What malloc keeps of freed memory is no use of it, and grows for long: each thread's arena comes to hold one of the
// device's blocks of 4 MiB, which lavapipe takes from malloc, between what lives longer. So a sample gives it back
// first (malloc_trim), and the tests set glibc to one arena, to a fixed size from which memory is mapped, and to no
// caches of threads, whose freed pieces count as given out (GLIBC_TUNABLES in CMakeLists.txt). An hour of soak without
// that: resident +2.6 %, malloc +0.20 %.
//
// malloc's figure is the sharpest, to 0.5 %: 100 bytes for each of 20,000 launches show. In a short run resident memory
// and the device's may grow by the 64 MiB that staging is bounded to: a ring may be made late, when the device happens
// to be slow.
//
// Threads: one thread samples.

#ifndef HALIDE_VULKAN_TEST_MEMORY_USE_H
#define HALIDE_VULKAN_TEST_MEMORY_USE_H

#include "../layer/count_layer.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <malloc.h>

namespace vulkan_test {

inline uint64_t resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        uint64_t kilobytes = 0;
        if (word == "RssAnon:" && status >> kilobytes) return kilobytes * 1024;
    }
    return 0;
}

class MemoryUse {
public:
    void sample() {
        malloc_trim(0);
        resident.push_back(resident_bytes());
        const struct mallinfo2 heap = mallinfo2();  // of all arenas
        device.push_back(hv_layer_allocated_bytes());
        // A CPU device's memory comes from malloc too, and goes by blocks of 16 MiB and more, when they are old. A
        // GPU's does not: taken off there, it made malloc seem to grow by every block that went.
        const uint64_t used = heap.uordblks + heap.hblkhd;
        in_use.push_back(hv_layer_is_cpu() && used > device.back() ? used - device.back() : used);
    }

    bool is_flat(bool long_run) const {
        if (resident.size() < 16) {
            printf("too few samples\n");
            return false;
        }
        const size_t n = resident.size(), half = n / 2, end = half - half / 4, last = n - n / 4;
        const auto largest = [](const Samples &s, size_t from, size_t to) {
            return *std::max_element(s.begin() + from, s.begin() + to);
        };
        const auto least = [](const Samples &s, size_t from, size_t to) {
            return *std::min_element(s.begin() + from, s.begin() + to);
        };
        const auto limit = [&](uint64_t before) {
            return long_run ? 1.01 : 1 + kStaging / (double)std::max<uint64_t>(before, 1);
        };
        const uint64_t resident_before = least(resident, end, half), device_before = largest(device, end, half);
        const bool flat[] = {judge("resident", resident_before, least(resident, last, n), limit(resident_before)),
                             judge("malloc", least(in_use, end, half), least(in_use, last, n), 1.005),
                             judge("device", device_before, largest(device, half, n), limit(device_before))};
        return flat[0] && flat[1] && flat[2];
    }

private:
    static constexpr double kStaging = 64 << 20;  // bytes
    using Samples = std::vector<uint64_t>;
    Samples resident, in_use, device;

    static bool judge(const char *what, uint64_t before, uint64_t after, double limit) {
        printf("%-8s %9.3f MB after the warm-up, %9.3f later (%+.2f %%)\n", what, 1e-6 * (double)before,
               1e-6 * (double)after, 100.0 * ((double)after - (double)before) / (double)before);
        return before > 0 && (double)after <= limit * (double)before;
    }
};

}  // namespace vulkan_test

#endif
