// memory_use.h: is the memory that a long run takes flat?
//
// Sampled are the process's resident memory, which on a CPU device holds the device memory too; the bytes that malloc
// has given out and not got back; and the bytes of device memory that the driver gave out, as the counting layer sees
// them. Flat means: after a warm-up, in which caches and staging grow to their size, the largest sample of the rest is
// at most 1 % above the largest of the warm-up's end.
//
// malloc's figure is the sharpest, and is held to 0.2 %: 100 bytes for each of 20,000 launches show. Resident memory
// would not show them: compiling leaves some 50 MB of free heap behind, which a leak fills first. In a short run it may
// grow by 10 %, since parts of the staging buffers may be touched late, only when the device happens to be slow.
//
// Threads: one thread samples.

#ifndef HALIDE_VULKAN_TEST_MEMORY_USE_H
#define HALIDE_VULKAN_TEST_MEMORY_USE_H

#include "../layer/count_layer.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <malloc.h>
#include <unistd.h>

namespace vulkan_test {

inline uint64_t resident_bytes() {
    unsigned long long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    const int read = fscanf(file, "%llu %llu", &total, &resident);
    fclose(file);
    return read == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

class MemoryUse {
public:
    void sample() {
        resident.push_back(resident_bytes());
        const struct mallinfo2 heap = mallinfo2();  // of all arenas
        in_use.push_back(heap.uordblks + heap.hblkhd);
        device.push_back(hv_layer_allocated_bytes());
    }

    // Samples of the first half are the warm-up; its end, what the second half is held against, is its last quarter.
    bool is_flat(bool long_run) const {
        const bool flat[] = {judge("resident", resident, long_run ? 1.01 : 1.1), judge("malloc", in_use, 1.002),
                             judge("device", device, 1.01)};
        return flat[0] && flat[1] && flat[2];
    }

private:
    std::vector<uint64_t> resident, in_use, device;

    static bool judge(const char *what, const std::vector<uint64_t> &samples, double limit) {
        const size_t half = samples.size() / 2;
        if (half < 4) {
            printf("%s: too few samples\n", what);
            return false;
        }
        const uint64_t before = *std::max_element(samples.begin() + half - half / 4, samples.begin() + half);
        const uint64_t after = *std::max_element(samples.begin() + half, samples.end());
        printf("%-8s %9.3f MB at the start, %9.3f after the warm-up, %9.3f at most later (%+.2f %%)\n", what,
               1e-6 * (double)samples.front(), 1e-6 * (double)before, 1e-6 * (double)after,
               100.0 * ((double)after - (double)before) / (double)before);
        return before > 0 && (double)after <= limit * (double)before;
    }
};

}  // namespace vulkan_test

#endif
