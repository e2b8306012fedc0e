// vulkan_staging.h: host memory that copies pass through, in both directions.
//
// The CPU fills or reads a piece of staging while the GPU copies another. Pieces come from a few rings (vulkan_ring.h),
// each one a buffer that stays mapped: 4 MiB at first, then 8, 16 and 32 MiB more when copies need them, 60 MiB in all.
// That is the bound on staging in flight: when no ring has room, the caller waits for the oldest piece. The pieces of a
// large copy are 4 MiB at most, so several of them are under way at once.
//
// The memory is host-cached (see plan_staging_memory); where it is not coherent, pieces are flushed and invalidated.
//
// Thread rule: unsafe, the device's lock; but the bytes of a piece belong to whoever reserved it.

#ifndef HALIDE_VULKAN_STAGING_H
#define HALIDE_VULKAN_STAGING_H

#include "vulkan_memory.h"
#include "vulkan_ring.h"

namespace halide_vulkan {
namespace {

constexpr uint32_t kStagingRings = 4;
constexpr uint64_t kFirstRing = 4ull << 20;
constexpr uint64_t kPieceBytes = 4ull << 20;

struct StagingPiece {
    uint8_t *bytes;
    VkBuffer buffer;
    uint64_t offset;  // in the buffer
    uint64_t size;
    uint32_t ring;
    uint32_t ticket;
};

enum class Reserved {
    yes,
    full,    // wait for the oldest piece
    failed,  // the failure says why
};

class Staging {
public:
    void create(const Gpu &gpu) {
        plan_staging_memory(gpu.memory, order);
        // A cache line at least, so that pieces of two threads never share one; the atom where memory is not coherent.
        alignment = max_of<uint64_t>(64, gpu.limits().nonCoherentAtomSize);
        alignment = max_of<uint64_t>(alignment, gpu.limits().optimalBufferCopyOffsetAlignment);
    }

    // bytes <= kPieceBytes. When full, *wait_for is the oldest epoch that holds a piece; 0 when all pieces are being
    // filled or read by other threads at this moment.
    Reserved reserve(Gpu &gpu, uint64_t bytes, uint64_t completed, StagingPiece &out, uint64_t *wait_for,
                     Failure &failure) {
        uint64_t oldest = 0;
        for (uint32_t i = 0; i < count; i++) {
            rings[i].retire(completed);
            if (rings[i].reserve(bytes, &out.offset, &out.ticket)) {
                out.bytes = buffers[i].mapped + out.offset;
                out.buffer = buffers[i].buffer;
                out.size = bytes;
                out.ring = i;
                used[i] = true;
                return Reserved::yes;
            }
            uint64_t epoch = 0;
            if (rings[i].oldest(&epoch) && (oldest == 0 || epoch < oldest)) oldest = epoch;
        }
        if (count < kStagingRings) {
            Failure refused;
            if (create_buffer(gpu, kFirstRing << count, kRegionUsage, order, true, "staging", buffers[count],
                              refused)) {
                rings[count].reset(kFirstRing << count, alignment);
                count++;
                return reserve(gpu, bytes, completed, out, wait_for, failure);
            }
            // With some staging there already, a refused ring only means less overlap.
            if (count == 0 || gpu.lost) {
                failure.take(refused);
                return Reserved::failed;
            }
        }
        *wait_for = oldest;
        return Reserved::full;
    }

    // The piece is free again once the epoch has completed.
    void publish(const StagingPiece &piece, uint64_t epoch) { rings[piece.ring].publish(piece.ticket, epoch); }
    // The piece is free again now.
    void cancel(const StagingPiece &piece) { rings[piece.ring].cancel(piece.ticket); }

    const OwnedBuffer &buffer_of(const StagingPiece &piece) const { return buffers[piece.ring]; }

    uint64_t in_use(uint64_t completed) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < count; i++) {
            rings[i].retire(completed);
            bytes += rings[i].in_use();
        }
        return bytes;
    }

    uint64_t reserved() const {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < count; i++) bytes += buffers[i].size;
        return bytes;
    }

    // Gives every ring back that holds no piece, the newest first. Whether any was.
    bool trim(Gpu &gpu, uint64_t completed) {
        const uint32_t before = count;
        while (count > 0) {
            rings[count - 1].retire(completed);
            if (rings[count - 1].in_use() > 0) break;
            destroy_buffer(gpu, buffers[--count]);
        }
        return count < before;
    }

    // Trim by age: gives the newest rings back as long as they were not used since the sweep before.
    void sweep(Gpu &gpu, uint64_t completed) {
        while (count > 0 && !used[count - 1]) {
            rings[count - 1].retire(completed);
            if (rings[count - 1].in_use() > 0) break;
            destroy_buffer(gpu, buffers[--count]);
        }
        for (bool &u : used) u = false;
    }

    void destroy(Gpu &gpu) {
        while (count > 0) destroy_buffer(gpu, buffers[--count]);
    }

private:
    OwnedBuffer buffers[kStagingRings];
    Ring rings[kStagingRings];
    bool used[kStagingRings];  // since the last sweep
    uint32_t count;
    MemoryOrder order;
    uint64_t alignment;
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_STAGING_H
