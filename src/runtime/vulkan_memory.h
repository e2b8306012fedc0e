// vulkan_memory.h: device memory: blocks, and the regions that buffers live in.
//
// A block is one VkDeviceMemory with one VkBuffer over it. A region is an offset and a size in a block, so giving out,
// splitting and joining regions makes and destroys nothing, whatever the GPU is doing. A freed region may be given out
// again at once: later work is ordered behind earlier work by the queue and the hazard tracker. Only the CPU must wait:
// it may touch a region directly when last_use <= completed.
//
// Blocks grow with use (16 MiB, doubling to 256 MiB): an allocation of 64 MiB costs 1.5 ms on an H200, a region
// nothing. A request over half a block gets one of its own size. Blocks that hold no region are kept for the next
// request until halide_vulkan_release_unused_device_allocations, a shortage, a free while reuse is off, or age: a block
// that nothing was taken from between two sweeps (HL_VK_TRIM_MS apart) goes back.
//
// Before a block would exceed the heap's budget (vulkan_budget.h), what lies idle goes, then growth ahead of need is
// given up; a block of the size that is needed is asked for in any case. When the driver refuses, idle blocks go, then
// those the GPU still uses are waited for, and only then the caller gets the error.
//
// A region that the GPU still uses and that an upload overwrites as a whole gets fresh bytes (replace): the CPU can
// write them at once, or a copy needs no barrier, while kernels read the old ones. These are parked until the GPU is
// done with them. They could go back at once, as freed regions do; but then the free bytes beside them would join them
// and count as busy, and the next upload would find nothing idle. Only memory that is held already is used for it.
//
// Regions are reference-counted: crops share their base's region and keep it alive after the base is freed. A region
// may also stand for an application's VkBuffer (wrap_native): then nothing here owns it.
//
// Every allocation obeys HL_VK_ALLOC_CONFIG, and an error names what was asked and the limit that refused it.
//
// Thread rule: unsafe, the device's lock.

#ifndef HALIDE_VULKAN_MEMORY_H
#define HALIDE_VULKAN_MEMORY_H

#include "vulkan_budget.h"
#include "vulkan_marks.h"
#include "vulkan_range_cache.h"

namespace halide_vulkan {
namespace {

constexpr uint64_t kFirstBlock = 16ull << 20;
constexpr uint64_t kLargestGrownBlock = 256ull << 20;
constexpr uint64_t kMiB = 1ull << 20;

constexpr VkBufferUsageFlags kRegionUsage = kTransferUsage | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;

struct Block {
    OwnedBuffer buffer;
    uint32_t first_range;  // names the block's first range while the block lives
    bool live;
    bool used;  // a region was taken from it since the last sweep
};

struct Region {
    VkBuffer buffer;       // the block's, or the application's
    VkBuffer alias;        // a buffer over this region alone, for the application; null until asked for
    uint64_t offset;       // in it, bytes
    uint64_t size;         // usable bytes, a multiple of the alignment unless wrapped
    uint64_t wanted;       // bytes that were asked for
    uint64_t last_write;   // epoch of the newest submission that writes it; see Submissions::was_lost
    uint64_t last_use;     // wrapped regions only: others have it in Ranges
    uint64_t gpu_wrote;    // epoch of the newest submission that may have written these bytes, for whatever buffer
    bool lost;             // a write was lost, and only parts were written since
    bool cpu_writes;       // the CPU writes it directly now and then
    uint32_t cpu_writers;  // direct uploads under way
    uint32_t cpu_readers;  // direct downloads under way
    uint32_t memory;       // names the memory to the hazard tracker: regions of one block share it
    uint32_t range;        // Ranges::kNone when wrapped
    uint32_t references;   // 0: this record is unused
    uint32_t next_unused;
};

class Memory {
public:
    Ranges ranges;
    uint64_t alignment;
    uint64_t reserved_bytes;  // in blocks
    uint32_t block_count() const { return live_blocks; }
    uint64_t used_bytes() const { return ranges.used_bytes() - kept.bytes() - parked_bytes; }

    bool create(Gpu &gpu, Failure &failure) {
        VkBuffer probe = VK_NULL_HANDLE;
        VkMemoryRequirements needs;
        const VkResult result = create_bare_buffer(gpu, 256, kRegionUsage, &probe, &needs);
        if (result != VK_SUCCESS) {
            gpu_failed(gpu, failure, "vkCreateBuffer", result);
            return false;
        }
        gpu.vk.vkDestroyBuffer(gpu.device, probe, gpu.callbacks);
        alignment = region_alignment(gpu.limits(), needs.alignment, gpu.alloc_config.multiple);
        ranges.init(alignment);
        plan_buffer_memory(gpu.memory, order);
        unused_region = kNoIndex;
        return true;
    }

    Region &region(uint32_t id) { return regions[id]; }
    uint64_t last_use(const Region &r) const {
        return r.range == Ranges::kNone ? r.last_use : ranges.last_use(r.range);
    }
    // A command of the open batch uses the region. A write may cover only a part, so contents that were lost stay lost.
    void touch(Region &r, Submissions &submissions, bool write) {
        const uint64_t epoch = submissions.open_epoch();
        if (write) {
            r.lost = is_lost(r, submissions);
            r.gpu_wrote = epoch;
            // A wrapped buffer's memory may be mapped by the application, which reads it after a sync.
            if (r.cpu_writes || r.range == Ranges::kNone || mapped_for_reading(r)) submissions.end_with_host_barrier();
        }
        if (r.range == Ranges::kNone)
            r.last_use = max_of(r.last_use, epoch);
        else
            ranges.touch(r.range, epoch);
        if (write) r.last_write = epoch;
    }
    bool is_lost(const Region &r, const Submissions &submissions) const {
        return r.lost || submissions.was_lost(r.last_write);
    }
    // The open batch writes all of it.
    void repaired(Region &r) { r.lost = false; }
    // It is about to be written as a whole, by several submissions: what is lost of those counts, and nothing before.
    // Whether there was a loss to forget.
    bool forget_loss(Region &r, const Submissions &submissions) {
        const bool lost = is_lost(r, submissions);
        r.lost = false;
        if (submissions.was_lost(r.last_write)) r.last_write = 0;
        return lost;
    }
    // Marks what refused submissions should have written. Called before each batch, so that not many are new.
    void note_losses(const Submissions &submissions) {
        if (losses_noted == submissions.losses()) return;
        losses_noted = submissions.losses();
        for (Region &r : regions) {
            if (r.references > 0) r.lost = is_lost(r, submissions);
        }
    }

    // Where the CPU sees the region's bytes; null when it cannot.
    uint8_t *mapped(const Region &r) const {
        if (r.range == Ranges::kNone || r.alias)
            return nullptr;  // what an application does with them is not known here
        const OwnedBuffer &b = blocks[ranges.block(r.range)].buffer;
        return b.mapped && b.coherent ? b.mapped + r.offset : nullptr;
    }

    // Whether the CPU may write there now: the GPU is done with the region, and its writes reached the host's domain.
    bool is_free_for_cpu(const Region &r, const Submissions &s) const {
        return last_use(r) <= s.completed && r.gpu_wrote <= s.host_done();
    }

    // The same where the CPU also reads at full speed.
    const uint8_t *mapped_for_reading(const Region &r) const {
        if (r.range == Ranges::kNone || !blocks[ranges.block(r.range)].buffer.cached) return nullptr;
        return mapped(r);
    }

    // Fresh bytes, not used since `idle_since`, for a region whose contents nobody needs any more. Crops follow: they
    // name the same region. False, and nothing changed, where an application knows the old bytes or nothing idle is
    // held.
    bool replace(Region &r, uint64_t completed, uint64_t idle_since) {
        if (r.range == Ranges::kNone || r.alias || r.cpu_writers || r.cpu_readers) return false;
        unpark(completed);
        if (parked_count == kParked || parked_bytes + r.size > kParkedBytes) return false;
        uint32_t fresh = kept.take(ranges, r.size, idle_since);
        if (fresh == Ranges::kNone) fresh = ranges.allocate_idle(r.size, idle_since);
        if (fresh == Ranges::kNone && kept.give_back(ranges)) fresh = ranges.allocate_idle(r.size, idle_since);
        if (fresh == Ranges::kNone) return false;
        const OwnedBuffer &old_buffer = blocks[ranges.block(r.range)].buffer;
        Block &block = blocks[ranges.block(fresh)];
        if (block.buffer.type != old_buffer.type) {
            ranges.free(fresh);
            return false;
        }
        parked[(first_parked + parked_count++) & (kParked - 1)] = {r.range, r.gpu_wrote};
        parked_bytes += r.size;
        block.used = true;
        r.buffer = block.buffer.buffer;
        r.offset = ranges.offset(fresh);
        r.memory = ranges.block(fresh);
        r.range = fresh;
        r.last_write = 0;
        r.gpu_wrote = ranges.last_use(fresh);
        r.lost = false;
        return true;
    }

    // A region of at least `bytes` with one reference, or kNoIndex. When memory is short, *wait_for is the epoch whose
    // completion may free some; it is 0 when waiting cannot help, and then the failure is filled.
    uint32_t allocate(Gpu &gpu, uint64_t bytes, uint64_t completed, uint64_t *wait_for, Failure &failure);

    // The region that native_buffer gave this buffer for; kNoIndex when it is none of ours.
    uint32_t region_of_alias(VkBuffer buffer) const {
        for (uint32_t id = 0; id < regions.size(); id++) {
            if (regions[id].references && regions[id].alias == buffer) return id;
        }
        return kNoIndex;
    }

    // For an application's buffer.
    uint32_t wrap(VkBuffer buffer, uint64_t size, Failure &failure) {
        const uint32_t id = take_region();
        if (id == kNoIndex) {
            failure.because(kOutOfMemory) << "Vulkan: out of host memory for a region record";
            return kNoIndex;
        }
        regions[id] = {};
        regions[id].buffer = buffer;
        regions[id].size = regions[id].wanted = size;
        regions[id].memory = wrapped_memory(buffer);
        regions[id].range = Ranges::kNone;
        regions[id].references = 1;
        regions[id].next_unused = kNoIndex;
        return id;
    }

    void add_reference(uint32_t id) { regions[id].references++; }
    // Gives the region back when the last reference goes. True when it went.
    bool drop_reference(Deferred &deferred, uint32_t id) {
        Region &r = regions[id];
        if (--r.references > 0) return false;
        // An alias may still be named by the application's own work up to the last use that we know of; when host
        // memory for the queue is out, it stays until the device goes.
        if (r.alias && !deferred.push(Dying::buffer, handle_number(r.alias), last_use(r))) return false;
        r.alias = VK_NULL_HANDLE;
        if (r.range != Ranges::kNone) {
            trace("Vulkan: Released memory for device region", r.offset);
            kept.keep(ranges, r.range);
        }
        r.next_unused = unused_region;
        unused_region = id;
        return true;
    }

    // See vulkan_buffers.h. `begin`: of the data in the region. Null with the reason in failure.
    VkBuffer native_buffer(Gpu &gpu, uint32_t id, int64_t begin, Failure &failure) {
        Region &r = regions[id];
        if (begin != 0) {
            failure.because(kUnimplemented)
                << "Vulkan: a crop that begins at byte " << begin << " of its allocation has no VkBuffer of its own";
            return VK_NULL_HANDLE;
        }
        if (r.range == Ranges::kNone) return r.buffer;
        if (r.alias) return r.alias;
        VkMemoryRequirements needs;
        const char *call = "vkCreateBuffer";
        VkResult result = create_bare_buffer(gpu, r.size, kRegionUsage, &r.alias, &needs);
        if (result == VK_SUCCESS) {
            call = "vkBindBufferMemory";
            result =
                gpu.vk.vkBindBufferMemory(gpu.device, r.alias, blocks[ranges.block(r.range)].buffer.memory, r.offset);
            if (result != VK_SUCCESS) gpu.vk.vkDestroyBuffer(gpu.device, r.alias, gpu.callbacks);
        }
        if (result == VK_SUCCESS) {
            name_object(gpu, VK_OBJECT_TYPE_BUFFER, r.alias, "a region, for the application");
            return r.alias;
        }
        r.alias = VK_NULL_HANDLE;
        gpu_failed(gpu, failure, call, result) << ": an alias of " << r.size << " bytes was asked for";
        return VK_NULL_HANDLE;
    }

    // Destroys blocks that hold no region and that the GPU is done with. Returns how many bytes went.
    uint64_t trim(Gpu &gpu, uint64_t completed) {
        unpark(completed);
        kept.give_back(ranges);
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < blocks.size(); i++) {
            Block &b = blocks[i];
            if (!b.live || !ranges.block_is_free(b.first_range) || ranges.last_use(b.first_range) > completed) continue;
            bytes += b.buffer.size;
            remove_block(gpu, b);
        }
        return bytes;
    }
    // Trim by age: destroys the blocks that are empty and were not used since the sweep before.
    void sweep(Gpu &gpu, uint64_t completed) {
        unpark(completed);
        kept.give_back(ranges);
        for (Block &b : blocks) {
            if (b.live && !b.used && ranges.block_is_free(b.first_range) && ranges.last_use(b.first_range) <= completed)
                remove_block(gpu, b);
            b.used = false;
        }
    }
    // The newest epoch that an empty block waits for; 0 when none does.
    uint64_t empty_blocks_last_use() {
        kept.give_back(ranges);
        uint64_t newest = 0;
        for (const Block &b : blocks) {
            if (b.live && ranges.block_is_free(b.first_range)) newest = max_of(newest, ranges.last_use(b.first_range));
        }
        return newest;
    }

    void destroy(Gpu &gpu) {
        for (Region &r : regions) {
            if (r.alias) gpu.vk.vkDestroyBuffer(gpu.device, r.alias, gpu.callbacks);
            if (r.references && r.range != Ranges::kNone) trace("Vulkan: Released memory for device region", r.offset);
        }
        for (Block &b : blocks) {
            if (b.live) destroy_block(gpu, b);
        }
        blocks.release();
        regions.release();
        ranges.release();
        kept.forget();
    }

private:
    // The hazard tracker's name of an application's buffer. Made of the handle, so that the buffer has the same name
    // when it is wrapped twice, and when it is detached and wrapped again while its work still runs. Blocks have the
    // names below. That two buffers share a name costs a barrier, in one case of 2^31.
    static uint32_t wrapped_memory(VkBuffer buffer) {
        return 1u << 31 | (uint32_t)(handle_number(buffer) * 0x9e3779b97f4a7c15ull >> 33);
    }

    Array<Block> blocks;
    Array<Region> regions;
    RangeCache kept;  // freed ranges, in use as far as `ranges` knows
    MemoryOrder order;
    // Ranges that were replaced, oldest first; in use as far as `ranges` knows. A batch has 64 commands, and half the
    // bound of staging is what uploads may keep busy here.
    static constexpr uint32_t kParked = 64;
    static constexpr uint64_t kParkedBytes = 32ull << 20;
    struct Parked {
        uint32_t range;
        uint64_t gpu_wrote;
    };
    Parked parked[kParked];
    uint32_t first_parked, parked_count;
    uint64_t parked_bytes;
    uint32_t unused_region;
    uint32_t live_blocks;
    uint32_t losses_noted;

    uint32_t take_region() {
        if (unused_region != kNoIndex) {
            const uint32_t id = unused_region;
            unused_region = regions[id].next_unused;
            return id;
        }
        Region fresh = {};
        return regions.push(fresh) ? (uint32_t)regions.size() - 1 : kNoIndex;
    }

    // Frees the parked ranges that the GPU is done with. It may be asked to free all: they are like any freed range
    // then.
    void unpark(uint64_t completed) {
        for (; parked_count > 0; parked_count--, first_parked = (first_parked + 1) & (kParked - 1)) {
            const Parked &p = parked[first_parked];
            if (ranges.last_use(p.range) > completed) return;
            // From now on only writes matter: the CPU may touch these bytes when the host has seen those.
            if (completed != UINT64_MAX) ranges.settle(p.range, p.gpu_wrote);
            parked_bytes -= ranges.size(p.range);
            ranges.free(p.range);
        }
    }

    void remove_block(Gpu &gpu, Block &b) {
        ranges.remove_block(b.first_range);
        destroy_block(gpu, b);
    }

    void destroy_block(Gpu &gpu, Block &b) {
        trace("vkDestroyBuffer: Destroyed buffer for device region", handle_number(b.buffer.buffer));
        reserved_bytes -= b.buffer.size;
        live_blocks--;
        destroy_buffer(gpu, b.buffer);
        b.live = false;
    }

    bool within_config(const AllocConfig &config, uint64_t bytes, Failure &failure) const {
        if (config.max_blocks && live_blocks >= config.max_blocks) {
            failure.because(kOutOfMemory) << "Vulkan: another memory block of " << bytes << " bytes would be number "
                                          << (live_blocks + 1) << "; HL_VK_ALLOC_CONFIG allows " << config.max_blocks;
            return false;
        }
        if (config.max_block_bytes && bytes > config.max_block_bytes) {
            failure.because(kOutOfMemory) << "Vulkan: a memory block of " << bytes << " bytes is over the "
                                          << config.max_block_bytes << " that HL_VK_ALLOC_CONFIG allows";
            return false;
        }
        if (config.pool_bytes && reserved_bytes + bytes > config.pool_bytes) {
            failure.because(kOutOfMemory)
                << "Vulkan: a memory block of " << bytes << " bytes beside the " << reserved_bytes
                << " held is over the " << config.pool_bytes << " that HL_VK_ALLOC_CONFIG allows";
            return false;
        }
        return true;
    }

    bool add_block(Gpu &gpu, uint64_t bytes, Failure &failure);
    bool add_block_for(Gpu &gpu, uint64_t bytes, uint64_t completed, Failure &failure);
    void explain_shortage(const Gpu &gpu, uint64_t bytes, const Failure &cause, Failure &failure) const;
};

inline bool Memory::add_block(Gpu &gpu, uint64_t bytes, Failure &failure) {
    if (!within_config(gpu.alloc_config, bytes, failure)) return false;
    uint32_t index = 0;
    while (index < blocks.size() && blocks[index].live) index++;
    Block fresh = {};
    if (index == blocks.size() && !blocks.push(fresh)) {
        failure.because(kOutOfMemory) << "Vulkan: out of host memory for a block record";
        return false;
    }
    Block &b = blocks[index];
    if (!create_buffer(gpu, bytes, kRegionUsage, order, false, "a memory block", b.buffer, failure)) return false;
    b.first_range = ranges.add_block(index, bytes);
    if (b.first_range == Ranges::kNone) {
        destroy_buffer(gpu, b.buffer);
        failure.because(kOutOfMemory) << "Vulkan: out of host memory for the ranges of a block";
        return false;
    }
    trace("vkCreateBuffer: Created buffer for device region", handle_number(b.buffer.buffer));
    b.live = true;
    live_blocks++;
    reserved_bytes += bytes;
    return true;
}

// A block that a region of `bytes` fits in: first of the size that use so far suggests, then of just the size needed.
inline bool Memory::add_block_for(Gpu &gpu, uint64_t bytes, uint64_t completed, Failure &failure) {
    const AllocConfig &config = gpu.alloc_config;
    uint64_t wanted = config.min_block_bytes
                          ? config.min_block_bytes
                          : min_of(kLargestGrownBlock, max_of(kFirstBlock, align_up(reserved_bytes, kMiB)));
    if (config.max_block_bytes) wanted = min_of(wanted, config.max_block_bytes);
    if (config.pool_bytes && reserved_bytes < config.pool_bytes)
        wanted = min_of(wanted, config.pool_bytes - reserved_bytes);
    if (gpu.largest_allocation) wanted = min_of(wanted, gpu.largest_allocation);
    wanted = align_down(wanted, alignment);
    // The type that is tried first; where it is full, drivers and budgets are asked again by the next block.
    HeapBudget budget = ask_budget(gpu, order.types[0]);
    if (!budget.has_room_for(max_of(wanted, bytes)) && trim(gpu, completed) > 0)
        budget = ask_budget(gpu, order.types[0]);
    if (!budget.has_room_for(wanted)) wanted = bytes;
    if (bytes <= wanted / 2 || (config.min_block_bytes && bytes <= wanted)) {
        Failure ignored;
        if (add_block(gpu, wanted, ignored)) return true;
        if (gpu.lost) {
            failure.take(ignored);
            return false;
        }
    }
    return add_block(gpu, bytes, failure);
}

// What was asked, what is held, and every limit that is known.
inline void Memory::explain_shortage(const Gpu &gpu, uint64_t bytes, const Failure &cause, Failure &failure) const {
    Text text = failure.because(cause.failed() ? cause.code : (int)kOutOfMemory);
    text << "Vulkan: no device memory for a buffer of " << bytes << " bytes (" << used_bytes() << " in use, "
         << reserved_bytes << " held";
    const HeapBudget budget = ask_budget(gpu, order.types[0]);
    if (budget.known) text << "; " << budget.usage << " of the budget of " << budget.budget << " used";
    if (gpu.largest_allocation && bytes > gpu.largest_allocation)
        text << "; maxMemoryAllocationSize is " << gpu.largest_allocation;
    text << "): " << (cause.failed() ? without_origin(cause.message) : "out of host memory");
}

inline uint32_t Memory::allocate(Gpu &gpu, uint64_t bytes, uint64_t completed, uint64_t *wait_for, Failure &failure) {
    *wait_for = 0;
    const uint64_t size = align_up(max_of<uint64_t>(bytes, 1), alignment);
    const uint32_t id = take_region();
    if (id == kNoIndex) {
        failure.because(kOutOfMemory) << "Vulkan: out of host memory for a region record";
        return kNoIndex;
    }
    uint32_t range = kept.take(ranges, size);
    if (range == Ranges::kNone) range = ranges.allocate(size);
    if (range == Ranges::kNone && (kept.give_back(ranges) || parked_count > 0)) {
        unpark(UINT64_MAX);
        range = ranges.allocate(size);
    }
    if (range == Ranges::kNone) {
        Failure first;
        bool added = add_block_for(gpu, size, completed, first);
        // Memory is short: what lies idle goes, then what waits for the GPU.
        if (!added && !gpu.lost && trim(gpu, completed) > 0) {
            Failure again;
            added = add_block_for(gpu, size, completed, again);
        }
        if (added) range = ranges.allocate(size);
        if (range == Ranges::kNone) {
            regions[id].next_unused = unused_region;
            unused_region = id;
            const uint64_t waiting = empty_blocks_last_use();
            if (!added && !gpu.lost && waiting > completed) {
                *wait_for = waiting;
            } else {
                explain_shortage(gpu, bytes, first, failure);
            }
            return kNoIndex;
        }
    }
    blocks[ranges.block(range)].used = true;
    Region fresh = {};
    fresh.buffer = blocks[ranges.block(range)].buffer.buffer;
    fresh.offset = ranges.offset(range);
    fresh.size = ranges.size(range);
    fresh.wanted = bytes;
    fresh.gpu_wrote = ranges.last_use(range);
    fresh.memory = ranges.block(range);
    fresh.range = range;
    fresh.references = 1;
    fresh.next_unused = kNoIndex;
    regions[id] = fresh;
    trace("Vulkan: Reserved memory for device region", ranges.offset(range));
    return id;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_MEMORY_H
