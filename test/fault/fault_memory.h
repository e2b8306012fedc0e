// fault_memory.h: the test's side of host_memory.h. Included by one file of a program.

#ifndef HALIDE_VULKAN_FAULT_MEMORY_H
#define HALIDE_VULKAN_FAULT_MEMORY_H

#include "host_memory.h"

#include <stdint.h>
#include <stdlib.h>

#include <mutex>
#include <unordered_set>

// Thread rule: everything may be called from any thread.
class HostMemory {
public:
    static HostMemory &get() {
        static HostMemory &it = *new HostMemory;  // the exit handler still frees
        return it;
    }

    // The nth following allocation fails (1 = the next), and all later ones if for_good; 0: none.
    void fail(int nth, bool for_good) {
        const std::lock_guard<std::mutex> lock(mutex);
        countdown = nth;
        forever = for_good;
        failures = 0;
    }
    uint64_t failed() {
        const std::lock_guard<std::mutex> lock(mutex);
        return failures;
    }
    uint64_t live() {
        const std::lock_guard<std::mutex> lock(mutex);
        return alive.size();
    }
    uint64_t wrong_frees() {
        const std::lock_guard<std::mutex> lock(mutex);
        return wrong;
    }

    void *allocate(size_t bytes) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (countdown == 1) {
            if (!forever) countdown = 0;
            failures++;
            return nullptr;
        }
        if (countdown > 1) countdown--;
        void *pointer = malloc(bytes);
        alive.insert(pointer);
        return pointer;
    }
    void free(void *pointer) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (alive.erase(pointer) == 0) {
            wrong++;
            return;
        }
        ::free(pointer);
    }

private:
    std::mutex mutex;
    std::unordered_set<void *> alive;
    int countdown = 0;
    bool forever = false;
    uint64_t failures = 0, wrong = 0;
};

extern "C" void *hv_fault_malloc(size_t bytes) { return HostMemory::get().allocate(bytes); }
extern "C" void hv_fault_free(void *pointer) { HostMemory::get().free(pointer); }

#endif
