/* halide_vulkan_stats.h: counters of the Vulkan runtime. Plain C, for programs; needs no other header of ours.
 *
 * An ahead-of-time program calls halide_vulkan_get_stats by name. In a just-in-time one its address stands in
 * halide_vulkan_registry of libHalideVulkan.so (src/interpose/README.md).
 *
 * Versions. Fields are only ever added at the end, and the caller says how large its struct is:
 *   - an older caller gets the fields that it knows;
 *   - a newer caller gets the fields that the runtime knows, and zeros for the rest. Start with a zeroed struct, since
 *     versions 1 and 2 of the runtime leave the rest as it was; `version` tells what is filled (0: one of these two).
 */

#ifndef HALIDE_VULKAN_STATS_STRUCT_H
#define HALIDE_VULKAN_STATS_STRUCT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HALIDE_VULKAN_STATS_VERSION 3

/* All counts and times since the device was made; what is "now" is as of the call. */
struct halide_vulkan_stats {
    /* Version 1. */
    uint64_t submissions;    /* vkQueueSubmit calls that succeeded */
    uint64_t in_flight;      /* of them, not known to be done now */
    uint64_t barriers;       /* between commands, because they conflict */
    uint64_t waits;          /* times a call waited for the GPU */
    uint64_t reserved_bytes; /* device memory held in blocks now */
    uint64_t used_bytes;     /* of it, in buffers now */
    uint64_t staging_bytes;  /* staging in use by copies now */
    char device_name[256];
    /* Version 2. */
    uint64_t pipelines;           /* made, from the pipeline cache or anew */
    uint64_t pipeline_ns;         /* what that took, added up over threads */
    uint64_t cache_read_bytes;    /* of the pipeline cache on disk: what this device began with */
    uint64_t cache_written_bytes; /* what it wrote */
    uint64_t cache_writes;
    char cache_note[256]; /* what last went wrong with the pipeline cache on disk; empty: nothing */
    /* Version 3. */
    uint64_t version;                /* HALIDE_VULKAN_STATS_VERSION of the runtime */
    uint64_t struct_bytes;           /* the size of this struct as the runtime knows it */
    uint64_t commands;               /* kernels and copies in all submissions */
    uint64_t batches;                /* submissions of two commands or more */
    uint64_t submissions_by_flusher; /* by the thread that submits what a quiet caller left open */
    uint64_t submissions_refused;    /* the driver refused them; what they were to write is lost */
    uint64_t barriers_spared;        /* commands that needed no barrier before them */
    uint64_t wait_ns;                /* time that calls spent waiting for the GPU, added up over threads */
    uint64_t waits_blocked;          /* waits that slept in the driver; the others ended while they polled */
    uint64_t staging_reserved_bytes; /* memory held for staging now */
    uint64_t memory_blocks;          /* blocks of device memory now */
};

/* Fills at most `bytes` of *out. 0; or halide_error_code_device_interface_no_device (-36), with *out untouched, when
 * there is no device yet: asking never makes one. */
int halide_vulkan_get_stats(void *user_context, struct halide_vulkan_stats *out, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
