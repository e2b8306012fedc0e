// vulkan_blob.h: reads the kernel blob that Halide's code generator hands to halide_vulkan_initialize_kernels. [pure]
//
// A blob is the GPU part of one compiled pipeline: a table of kernels, then for each kernel a header (resource counts,
// specialization constants, shared memory, ids of the local size) and its SPIR-V. It has no magic number, no version
// and no checksum, and the pointer may outlive the pipeline it came from. So nothing in it is trusted: every count and
// length is checked against what is left of the part it stands in before it is used, all parts must fill the blob to
// the last byte, and what a launch could not work with (two uniform buffers, a local size id that names no constant) is
// refused here, where the offset can still be told.
//
// Layout, in little-endian 32-bit words; a string is a word count W and W words, NUL-padded:
//     K, K times { S, name }, K times { S bytes: H, D, D times entry, SPIR-V from word H on }
//     entry: name, U, B, C, C times { name, id, bytes }, M, M times { name, id, element bytes, elements }, 3 ids
//
// Work is linear in the size of the blob: each turn of each loop consumes words.
//
// Thread rule: unsafe, the owner locks. Ownership: Blob owns its arrays; names and SPIR-V point into the bytes that
// were given and live as long as these. Errors: false, with what was found, at which byte, and the limit.

#ifndef HALIDE_VULKAN_BLOB_H
#define HALIDE_VULKAN_BLOB_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

constexpr uint32_t kSpirvMagic = 0x07230203u;
constexpr uint32_t kSpirvHeaderWords = 5;

// Halide packs all scalars of a kernel into one block, so there is one uniform buffer or none.
constexpr uint32_t kMaxUniformBuffers = 1;
// Far above any kernel seen (a few dozen) and above what most devices bind in one stage; it bounds what is allocated
// per kernel from a damaged count.
constexpr uint32_t kMaxStorageBuffers = 1024;
// The size of a specialization constant: Halide emits 32-bit ones only.
constexpr uint32_t kSpecializationBytes = 4;
// Shared memory is handed to a launch as an int.
constexpr uint32_t kMaxSharedBytes = 0x7fffffffu;

struct BlobConstant {
    uint32_t id;     // SpecId
    uint32_t bytes;  // always kSpecializationBytes
};

struct BlobShared {
    uint32_t constant_id;  // of the constant that holds the element count; 0 = fixed size
    uint32_t element_bytes;
    uint32_t elements;  // the default where the size is dynamic
};

struct BlobKernel {
    const char *name;  // NUL-terminated, inside the blob; also the name of the entry point
    const uint32_t *spirv;
    size_t spirv_words;
    uint32_t uniform_buffers, storage_buffers;
    uint32_t constants_begin, constants_count;  // into Blob::constants
    uint32_t shared_begin, shared_count;        // into Blob::shared
    uint32_t local_size_ids[3];                 // ids of constants; 0 = fixed in the SPIR-V
};

struct Blob {
    Array<BlobKernel> kernels;
    Array<BlobConstant> constants;
    Array<BlobShared> shared;

    void release() {
        kernels.release();
        constants.release();
        shared.release();
    }
};

// A reader of words [at, end) of a blob. The first failure sticks, later reads give 0.
class BlobReader {
public:
    BlobReader(const uint32_t *words, size_t begin, size_t end, Failure &failure)
        : words(words), at(begin), end(end), failure(failure) {}

    size_t position() const { return at; }
    size_t left() const { return end - at; }

    Text damaged(size_t word) {
        return failure.because(kInternalError) << "Vulkan: damaged kernel blob at byte " << (uint64_t)word * 4 << ": ";
    }

    uint32_t word(const char *what) {
        if (failure.failed()) return 0;
        if (at == end) {
            damaged(at) << what << " expected, but the part ends here";
            return 0;
        }
        return words[at++];
    }

    // A count of items that take at least item_words each.
    uint32_t count(const char *what, uint32_t item_words, uint32_t limit) {
        const size_t where = at;
        const uint32_t n = word(what);
        if (failure.failed()) return 0;
        const size_t room = left() / item_words;
        const uint64_t most = min_of<uint64_t>(room, limit);
        if (n <= most) return n;
        damaged(where) << what << " is " << n << ", at most " << most << " possible";
        return 0;
    }

    uint32_t at_most(const char *what, uint32_t limit) {
        const size_t where = at;
        const uint32_t n = word(what);
        if (failure.failed() || n <= limit) return n;
        damaged(where) << what << " is " << n << ", at most " << limit << " allowed";
        return 0;
    }

    // An empty string where something is wrong.
    const char *string(const char *what) {
        const size_t where = at;
        const uint32_t n = count(what, 1, 0xffffffffu);
        if (failure.failed()) return "";
        const char *text = (const char *)(words + at);
        // The writer always leaves room for a NUL, so the last byte is one.
        if (n == 0 || text[(size_t)n * 4 - 1] != 0) {
            damaged(where) << what << " of " << n << " words is not NUL-terminated";
            return "";
        }
        at += n;
        return text;
    }

private:
    const uint32_t *words;
    size_t at, end;
    Failure &failure;
};

inline bool blob_out_of_memory(Failure &failure) {
    failure.because(kOutOfMemory) << "Vulkan: out of host memory while reading a kernel blob";
    return false;
}

// Is id one of the kernel's specialization constants?
inline bool blob_has_constant(const Blob &blob, const BlobKernel &kernel, uint32_t id) {
    for (uint32_t i = 0; i < kernel.constants_count; i++) {
        if (blob.constants[kernel.constants_begin + i].id == id) return true;
    }
    return false;
}

inline bool parse_blob_constants(BlobReader &reader, BlobKernel &kernel, Blob &out, Failure &failure) {
    const uint32_t n = reader.count("the number of specialization constants", 3, 0xffffffffu);
    kernel.constants_begin = (uint32_t)out.constants.size();
    kernel.constants_count = n;
    for (uint32_t i = 0; i < n && !failure.failed(); i++) {
        reader.string("the name of a specialization constant");
        BlobConstant constant;
        constant.id = reader.word("a specialization constant id");
        const size_t where = reader.position();
        constant.bytes = reader.word("the size of a specialization constant");
        if (failure.failed()) return false;
        if (constant.bytes != kSpecializationBytes) {
            reader.damaged(where) << "specialization constant " << constant.id << " has " << constant.bytes
                                  << " bytes, only " << kSpecializationBytes << " supported";
            return false;
        }
        if (!out.constants.push(constant)) return blob_out_of_memory(failure);
    }
    return !failure.failed();
}

inline bool parse_blob_shared(BlobReader &reader, BlobKernel &kernel, Blob &out, Failure &failure) {
    const uint32_t n = reader.count("the number of shared memory allocations", 4, 0xffffffffu);
    kernel.shared_begin = (uint32_t)out.shared.size();
    kernel.shared_count = n;
    uint64_t fixed_bytes = 0;
    for (uint32_t i = 0; i < n && !failure.failed(); i++) {
        const size_t where = reader.position();
        reader.string("the name of a shared memory allocation");
        BlobShared shared;
        shared.constant_id = reader.word("the constant id of a shared memory allocation");
        shared.element_bytes = reader.word("the element size of a shared memory allocation");
        shared.elements = reader.word("the element count of a shared memory allocation");
        if (failure.failed()) return false;
        const uint64_t bytes = (uint64_t)shared.element_bytes * shared.elements;
        if (shared.constant_id == 0) fixed_bytes += min_of<uint64_t>(bytes, kMaxSharedBytes);
        if (shared.element_bytes == 0 || bytes > kMaxSharedBytes || fixed_bytes > kMaxSharedBytes) {
            reader.damaged(where) << "shared memory of " << shared.elements << " elements of " << shared.element_bytes
                                  << " bytes, at most " << kMaxSharedBytes << " bytes in all possible";
            return false;
        }
        if (!out.shared.push(shared)) return blob_out_of_memory(failure);
    }
    return !failure.failed();
}

// Ids must name constants of the kernel: a launch gives these their values.
inline bool check_blob_ids(BlobReader &reader, const BlobKernel &kernel, const Blob &blob, size_t ids_at,
                           Failure &failure) {
    for (int i = 0; i < 3; i++) {
        const uint32_t id = kernel.local_size_ids[i];
        if (id == 0 || blob_has_constant(blob, kernel, id)) continue;
        reader.damaged(ids_at + i) << "the local size in dimension " << i << " is constant " << id
                                   << ", which is none of the kernel's " << kernel.constants_count;
        return false;
    }
    uint32_t dynamic = 0;
    for (uint32_t i = 0; i < kernel.shared_count; i++) {
        const uint32_t id = blob.shared[kernel.shared_begin + i].constant_id;
        if (id == 0) continue;
        // Searching the constants for each allocation of a damaged blob would take quadratic time; a launch can work
        // out the size of one dynamic allocation only, so there is no use in knowing more than whether there are two.
        if (++dynamic > 1) continue;
        if (blob_has_constant(blob, kernel, id)) continue;
        reader.damaged(ids_at) << "shared memory is sized by constant " << id << ", which is none of the kernel's "
                               << kernel.constants_count;
        return false;
    }
    return !failure.failed();
}

// Words [begin, end) of the blob are one kernel, whose name the table has given.
inline bool parse_blob_kernel(const uint32_t *words, size_t begin, size_t end, const char *name, Blob &out,
                              Failure &failure) {
    BlobReader reader(words, begin, end, failure);
    // The header ends before the SPIR-V, which has a header of its own.
    const uint32_t header_words = reader.at_most("the header length of a kernel", 0xffffffffu);
    if (failure.failed()) return false;
    if (header_words < 2 || header_words > end - begin || end - begin - header_words < kSpirvHeaderWords) {
        reader.damaged(begin) << "the header length of kernel " << name << " is " << header_words << " words of "
                              << (uint64_t)(end - begin) << ", the SPIR-V needs at least " << kSpirvHeaderWords;
        return false;
    }

    BlobReader header(words, begin + 1, begin + header_words, failure);
    const uint32_t entry_points = header.word("the number of entry points");
    if (failure.failed()) return false;
    if (entry_points != 1) {
        header.damaged(begin + 1) << "kernel " << name << " has " << entry_points
                                  << " entry points, only 1 is supported";
        return false;
    }
    BlobKernel kernel{};
    kernel.name = name;
    const size_t entry_at = header.position();
    const char *entry = header.string("the name of an entry point");
    if (failure.failed()) return false;
    if (!same_text(entry, name)) {
        header.damaged(entry_at) << "the entry point is named " << entry << ", its kernel " << name;
        return false;
    }
    kernel.uniform_buffers = header.at_most("the number of uniform buffers", kMaxUniformBuffers);
    kernel.storage_buffers = header.at_most("the number of storage buffers", kMaxStorageBuffers);
    if (!parse_blob_constants(header, kernel, out, failure)) return false;
    if (!parse_blob_shared(header, kernel, out, failure)) return false;
    const size_t ids_at = header.position();
    for (uint32_t &id : kernel.local_size_ids) id = header.word("a local size id");
    if (failure.failed()) return false;
    if (!check_blob_ids(header, kernel, out, ids_at, failure)) return false;
    if (header.left() != 0) {
        header.damaged(header.position())
            << (uint64_t)header.left() << " unknown words in the header of kernel " << name;
        return false;
    }

    kernel.spirv = words + begin + header_words;
    kernel.spirv_words = end - begin - header_words;
    if (kernel.spirv[0] != kSpirvMagic) {
        (header.damaged(begin + header_words) << "SPIR-V of kernel " << name << " begins with ").hex(kernel.spirv[0])
            << ", not with its magic number";
        return false;
    }
    return out.kernels.push(kernel) || blob_out_of_memory(failure);
}

inline bool parse_blob_parts(const uint32_t *words, size_t count, Blob &out, Failure &failure) {
    BlobReader table(words, 0, count, failure);
    // An entry of the table takes three words or more, and the kernel it announces more than that.
    const uint32_t kernels = table.count("the number of kernels", 3, 0xffffffffu);
    if (failure.failed()) return false;
    // The table is read twice, first to find where the kernels begin.
    for (uint32_t i = 0; i < kernels; i++) {
        table.word("the size of a kernel");
        table.string("the name of a kernel");
        if (failure.failed()) return false;
    }
    size_t begin = table.position();
    BlobReader again(words, 1, begin, failure);
    for (uint32_t i = 0; i < kernels; i++) {
        const size_t where = again.position();
        const uint32_t bytes = again.word("the size of a kernel");
        const char *name = again.string("the name of a kernel");
        if (failure.failed()) return false;
        if (bytes % 4 != 0 || bytes / 4 > count - begin) {
            again.damaged(where) << "kernel " << name << " has " << bytes << " bytes, " << (uint64_t)(count - begin) * 4
                                 << " are left";
            return false;
        }
        if (!parse_blob_kernel(words, begin, begin + bytes / 4, name, out, failure)) return false;
        begin += bytes / 4;
    }
    if (begin == count) return true;
    again.damaged(begin) << (uint64_t)(count - begin) * 4 << " bytes after the last kernel";
    return false;
}

// Fills out, which must be empty or a former result. On failure out is empty.
inline bool parse_blob(const void *bytes, size_t size, Blob &out, Failure &failure) {
    out.kernels.clear();
    out.constants.clear();
    out.shared.clear();
    // Sizes reach us as an int, and offsets of words must fit 32 bits.
    if (!bytes || size % 4 != 0 || size > 0x7fffffffu || ((uintptr_t)bytes & 3) != 0) {
        failure.because(kInternalError) << "Vulkan: damaged kernel blob: " << (uint64_t)size << " bytes at "
                                        << (bytes ? "an address" : "NULL") << ", both must be multiples of 4, the size "
                                        << "at most " << 0x7fffffffu;
        return false;
    }
    if (parse_blob_parts((const uint32_t *)bytes, size / 4, out, failure)) return true;
    out.kernels.clear();
    out.constants.clear();
    out.shared.clear();
    return false;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_BLOB_H
