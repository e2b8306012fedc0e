// vulkan_spirv.h: reads what a launch must know from the SPIR-V of a kernel. [pure]
//
// The kernel blob leaves out three things that only the SPIR-V tells: where the scalars lie in the uniform block (and
// how many there are, which tells the blobs of Halide versions apart), which buffers the kernel writes (two kernels
// that only read a buffer need no barrier between them), and the local size that is built in. This header finds them,
// and whether vulkan_spirv_patch.h can make the relocated variant of the kernel.
//
// A wrong "never written" is a data race. So a buffer counts as written unless every instruction that mentions it, or a
// pointer into it, is an access chain or a load. An instruction that is not known, or that comes in an order which a
// valid module does not have, makes the answer "written" and "not relocatable", never the other way round.
//
// Thread rule: unsafe, the owner locks. Ownership: SpirvInfo owns its arrays; entry_point points into the given words.
// Errors: false, with the word where something was found. Uniform offsets are passed on as the module has them; who
// writes at them must bound them.

#ifndef HALIDE_VULKAN_SPIRV_H
#define HALIDE_VULKAN_SPIRV_H

#include "vulkan_spirv_module.h"

namespace halide_vulkan {
namespace {

struct SpirvBuffer {
    uint32_t binding;
    uint32_t array_stride;  // bytes from element to element; 0 where the buffer is not one array
    bool written;           // false only where it is proven that the kernel never writes
    bool read;              // false only where it is proven that the kernel never reads
};

struct SpirvInfo {
    const char *entry_point = "";        // inside the module
    uint32_t local_size[3] = {0, 0, 0};  // the defaults where ids
    bool local_size_is_ids = false;
    uint32_t local_size_ids[3] = {0, 0, 0};  // SpecId of the constant; 0 where this dimension is fixed
    Array<uint32_t> uniform_offsets;         // of the members of the block at binding 0; empty without one
    Array<SpirvBuffer> buffers;              // in binding order
    uint32_t features = 0;                   // Feature bits that a device must have
    bool relocatable = false;
    const char *why_not = nullptr;  // where not relocatable

    void release() {
        uniform_offsets.release();
        buffers.release();
    }
    // The place of a binding in buffers, or where it would have to be.
    uint32_t place_of(uint32_t binding) const {
        uint32_t low = 0, high = (uint32_t)buffers.size();
        while (low < high) {
            const uint32_t middle = (low + high) / 2;
            if (buffers[middle].binding < binding)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
    void not_relocatable(const char *why) {
        if (!why_not) why_not = why;
    }
};

// The struct that a variable of a pointer type points at; one of count 0 where it is something else.
inline SpirvInstruction spirv_struct_of(const SpirvModule &module, uint32_t pointer_type) {
    const SpirvInstruction pointer = module.definition(pointer_type, kOpTypePointer, 4);
    return module.definition(pointer.count ? pointer[3] : 0, kOpTypeStruct, 2);
}

inline bool spirv_is_storage_buffer(const SpirvModule &module, const SpirvInstruction &variable) {
    if (variable[3] == kClassStorageBuffer) return true;
    if (variable[3] != kClassUniform) return false;
    const SpirvInstruction type = spirv_struct_of(module, variable[1]);
    return type.count != 0 && (module.ids[type[1]].has & SpirvId::kBufferBlock);
}

// Gives variables that are followed their origin: WorkgroupId and the buffers.
inline void mark_spirv_variables(SpirvModule &module, const SpirvInfo &info) {
    for (uint32_t at = kSpirvHeaderWords; at < module.count; at += module.instruction(at).count) {
        const SpirvInstruction i = module.instruction(at);
        if (i.op != kOpVariable || i.count < 4) continue;
        SpirvId &id = module.ids[i[2]];
        if ((id.has & SpirvId::kBuiltIn) && id.built_in == kBuiltInWorkgroupId) id.origin = kOriginGroupId;
        if (!spirv_is_storage_buffer(module, i)) continue;
        const uint32_t place = info.place_of(id.number);
        if (place < info.buffers.size() && info.buffers[place].binding == id.number) {
            id.origin = kOriginFirstBuffer + place;
        }
    }
}

inline bool is_access_chain(const SpirvInstruction &i) {
    return (i.op == kOpAccessChain || i.op == kOpInBoundsAccessChain) && i.count >= 4;
}

// Hands origins on from pointers to pointers into them. False where a chain stands before what it is based on, which no
// valid module has: origins are then incomplete.
inline bool follow_access_chains(SpirvModule &module) {
    bool in_order = true;
    for (uint32_t at = kSpirvHeaderWords; at < module.count; at += module.instruction(at).count) {
        const SpirvInstruction i = module.instruction(at);
        if (!is_access_chain(i)) continue;
        if (!module.valid(i[3]) || module.ids[i[3]].at > at)
            in_order = false;
        else
            module.ids[i[2]].origin = module.ids[i[3]].origin;
    }
    return in_order;
}

inline bool is_variable(const SpirvModule &module, uint32_t id) {
    return module.definition(id, kOpVariable, 4).count != 0;
}

// Three 32-bit integers?
inline bool is_group_id_vector(const SpirvModule &module, uint32_t type) {
    const SpirvInstruction vector = module.definition(type, kOpTypeVector, 4);
    return vector.count != 0 && vector[3] == 3 && module.is_int(vector[2], 32);
}

// Why this access chain, whose base is followed, hinders relocation; NULL if it does not.
inline const char *chain_hinders(const SpirvModule &module, const SpirvInstruction &i) {
    const bool direct = is_variable(module, i[3]);
    uint32_t value;
    if (module.ids[i[3]].origin == kOriginGroupId) {
        const bool component = direct && i.count == 5 && module.is_fixed(i[4], &value) && value < 3;
        return component ? nullptr : "the group id is indexed in an unexpected way";
    }
    if (!direct) return nullptr;  // points into an element already
    if (i.count < 6 || !module.is_fixed(i[4], &value) || value != 0) {
        return "a buffer is indexed in an unexpected way";
    }
    const uint32_t index_type = module.type_of(i[5]);
    if (module.is_int(index_type, 32) || module.is_int(index_type, 64)) return nullptr;
    return "an index is not known to be an integer of 32 or 64 bits";
}

// The same for a load through a followed pointer.
inline const char *load_hinders(const SpirvModule &module, const SpirvInstruction &i) {
    const bool direct = is_variable(module, i[3]);
    if (module.ids[i[3]].origin != kOriginGroupId) return direct ? "a whole buffer is loaded" : nullptr;
    const bool expected = direct ? is_group_id_vector(module, i[1]) : module.is_int(i[1], 32);
    return expected ? nullptr : "the group id has an unexpected type";
}

// Notes every use of an id that is followed. allowed = the word of i where it does no harm, 0 for none.
inline void note_uses(const SpirvModule &module, const SpirvInstruction &i, uint32_t allowed, SpirvInfo &out) {
    uint32_t first, last;
    spirv_used_words(i, &first, &last);
    for (uint32_t w = first; w < last; w++) {
        if (w == allowed || !module.valid(i[w])) continue;
        const uint32_t origin = module.ids[i[w]].origin;
        if (origin == kOriginNone) continue;
        if (origin == kOriginGroupId) {
            out.not_relocatable("the group id is used in an unexpected way");
            continue;
        }
        out.buffers[origin - kOriginFirstBuffer].written = true;
        if (i.op != kOpStore || w != 1) out.buffers[origin - kOriginFirstBuffer].read = true;
        if (is_variable(module, i[w])) out.not_relocatable("a buffer is used other than by its elements");
    }
}

// Which buffers are written, and may accesses be relocated?
inline void read_uses(SpirvModule &module, SpirvInfo &out) {
    mark_spirv_variables(module, out);
    if (!follow_access_chains(module)) {
        for (SpirvBuffer &buffer : out.buffers) buffer.written = buffer.read = true;
        out.not_relocatable("the instructions are out of order");
        return;
    }
    for (uint32_t at = kSpirvHeaderWords; at < module.count; at += module.instruction(at).count) {
        const SpirvInstruction i = module.instruction(at);
        uint32_t allowed = 0;
        const bool chain = is_access_chain(i);
        if ((chain || (i.op == kOpLoad && i.count >= 4)) && module.valid(i[3]) &&
            module.ids[i[3]].origin != kOriginNone) {
            const char *hindrance = chain ? chain_hinders(module, i) : load_hinders(module, i);
            if (hindrance) out.not_relocatable(hindrance);
            allowed = 3;
            const uint32_t origin = module.ids[i[3]].origin;
            if (!chain && origin != kOriginGroupId) out.buffers[origin - kOriginFirstBuffer].read = true;
        }
        note_uses(module, i, allowed, out);
    }
}

// What a buffer's elements ask of the device. Halide's kernels declare the extension for small ones and leave out the
// capability, so their type decides.
inline uint32_t feature_of_elements(const SpirvModule &module, uint32_t array) {
    SpirvInstruction i = module.definition(array, kOpTypeRuntimeArray, 3);
    if (i.count == 0) i = module.definition(array, kOpTypeArray, 4);
    uint32_t type = i.count ? i[2] : 0;
    const SpirvInstruction vector = module.definition(type, kOpTypeVector, 4);
    if (vector.count) type = vector[2];
    i = module.definition(type, kOpTypeInt, 4);
    if (i.count == 0) i = module.definition(type, kOpTypeFloat, 3);
    const uint32_t bits = i.count ? i[2] : 32;
    if (bits == 8) return kStorage8;
    return bits == 16 ? (uint32_t)kStorage16 : 0u;
}

// Takes up a storage buffer.
inline bool read_buffer(const SpirvModule &module, const SpirvInstruction &i, SpirvInfo &out, Failure &failure) {
    const SpirvInstruction type = spirv_struct_of(module, i[1]);
    const uint32_t element = type.count == 3 ? type[2] : 0;
    out.features |= feature_of_elements(module, element);
    uint32_t stride = 0;
    if (module.definition(element, kOpTypeRuntimeArray, 3).count || module.definition(element, kOpTypeArray, 4).count) {
        stride = module.ids[element].number;
    }
    if (stride == 0) out.not_relocatable("a buffer is not one array");
    const uint32_t binding = module.ids[i[2]].number, place = out.place_of(binding);
    if (place < out.buffers.size() && out.buffers[place].binding == binding) {
        // Two views of one buffer: a write through either counts, as both lead to the same entry.
        if (out.buffers[place].array_stride != stride) out.buffers[place].array_stride = 0;
        out.not_relocatable("two variables share a binding");
        return true;
    }
    if (out.buffers.size() == kMaxStorageBuffers) {
        bad_spirv(failure, i.at) << "more than " << kMaxStorageBuffers << " storage buffers";
        return false;
    }
    if (!out.buffers.push(SpirvBuffer{})) return spirv_out_of_memory(failure);
    for (size_t k = out.buffers.size() - 1; k > place; k--) out.buffers[k] = out.buffers[k - 1];
    out.buffers[place] = SpirvBuffer{binding, stride, false};
    return true;
}

// Takes up the uniform block: the offsets of its members.
inline bool read_uniform(const SpirvModule &module, const SpirvInstruction &i, SpirvInfo &out, Failure &failure) {
    const SpirvInstruction type = spirv_struct_of(module, i[1]);
    if (type.count == 0 || !(module.ids[type[1]].has & SpirvId::kBlock) || module.ids[i[2]].number != 0 ||
        !out.uniform_offsets.empty()) {
        bad_spirv(failure, i.at) << "uniform variable " << i[2] << " at binding " << module.ids[i[2]].number
                                 << " is not the one block at binding 0";
        return false;
    }
    const uint32_t members = type.count - 2, none = 0xffffffffu;
    if (!out.uniform_offsets.resize(members)) return spirv_out_of_memory(failure);
    for (uint32_t &offset : out.uniform_offsets) offset = none;
    for (uint32_t at = kSpirvHeaderWords; at < module.count; at += module.instruction(at).count) {
        const SpirvInstruction d = module.instruction(at);
        if (d.op != kOpMemberDecorate || d.count < 5 || d[1] != type[1] || d[3] != kDecorationOffset) continue;
        if (d[2] < members) out.uniform_offsets[d[2]] = d[4];
    }
    for (uint32_t k = 0; k < members; k++) {
        if (out.uniform_offsets[k] != none) continue;
        bad_spirv(failure, type.at) << "member " << k << " of the uniform block has no offset";
        return false;
    }
    return true;
}

// Takes up all resources of the module.
inline bool read_variables(const SpirvModule &module, SpirvInfo &out, Failure &failure) {
    bool uniform = false;
    for (uint32_t at = kSpirvHeaderWords; at < module.count; at += module.instruction(at).count) {
        const SpirvInstruction i = module.instruction(at);
        if (i.op != kOpVariable) continue;
        if (i.count < 4) {
            bad_spirv(failure, at) << "a variable of " << i.count << " words";
            return false;
        }
        const uint32_t storage = i[3];
        if (storage == kClassPushConstant) out.not_relocatable("it has push constants already");
        if (storage == kClassInput || storage == kClassWorkgroup || storage == kClassPrivate ||
            storage == kClassFunction || storage == kClassPushConstant) {
            continue;
        }
        const SpirvId &id = module.ids[i[2]];
        if (storage != kClassUniform && storage != kClassStorageBuffer) {
            bad_spirv(failure, at) << "variable " << i[2] << " has storage class " << storage
                                   << ", only uniform and storage buffers are supported";
            return false;
        }
        if (!(id.has & SpirvId::kBinding) || !(id.has & SpirvId::kSet) || id.set != 0) {
            bad_spirv(failure, at) << "variable " << i[2] << " has no binding in descriptor set 0";
            return false;
        }
        if (spirv_is_storage_buffer(module, i)) {
            if (!read_buffer(module, i, out, failure)) return false;
            continue;
        }
        if (uniform) {
            bad_spirv(failure, at) << "there are two uniform blocks";
            return false;
        }
        uniform = true;
        if (!read_uniform(module, i, out, failure)) return false;
    }
    if (!uniform || out.buffers.empty() || out.buffers[0].binding != 0) return true;
    bad_spirv(failure, 0) << "binding 0 is both a uniform and a storage buffer";
    return false;
}

// One dimension of the local size, given by a constant.
inline bool read_size_constant(const SpirvModule &module, uint32_t id, int dimension, SpirvInfo &out,
                               Failure &failure) {
    if (!module.integer(id, &out.local_size[dimension], &out.local_size_ids[dimension])) {
        bad_spirv(failure, 0) << "the local size in dimension " << dimension << " is id " << id
                              << ", which is no 32-bit constant";
        return false;
    }
    if (out.local_size_ids[dimension] != 0) out.local_size_is_ids = true;
    return true;
}

// A constant that is the WorkgroupSize built-in goes before either execution mode.
inline bool read_local_size(const SpirvModule &module, SpirvInfo &out, Failure &failure) {
    SpirvInstruction ids{nullptr, 0, 0, 0};  // its words 3 to 5 are the ids of constants
    for (uint32_t at = kSpirvHeaderWords; at < module.functions_at; at += module.instruction(at).count) {
        const SpirvInstruction i = module.instruction(at);
        if (i.count != 6 || i[1] != module.entry_function) continue;
        if (i.op == kOpExecutionMode && i[2] == kModeLocalSize) {
            for (int k = 0; k < 3; k++) out.local_size[k] = i[3 + k];
        }
        if (i.op == kOpExecutionModeId && i[2] == kModeLocalSizeId) ids = i;
    }
    if (module.size_constant != 0) {
        ids = module.definition(module.size_constant, kOpConstantComposite, 6);
        if (ids.count == 0) ids = module.definition(module.size_constant, kOpSpecConstantComposite, 6);
        if (ids.count == 0) {
            bad_spirv(failure, 0) << "the WorkgroupSize built-in is id " << module.size_constant
                                  << ", which is no composite of three";
            return false;
        }
    }
    for (int k = 0; k < 3 && ids.count != 0; k++) {
        if (!read_size_constant(module, ids[3 + k], k, out, failure)) return false;
    }
    if (out.local_size[0] && out.local_size[1] && out.local_size[2]) return true;
    bad_spirv(failure, module.entry_at) << "the local size is " << out.local_size[0] << " " << out.local_size[1] << " "
                                        << out.local_size[2];
    return false;
}

inline bool read_entry_name(const SpirvModule &module, SpirvInfo &out, Failure &failure) {
    const SpirvInstruction entry = module.instruction(module.entry_at);
    const char *name = (const char *)(entry.words + 3);
    for (size_t k = 0; k < (size_t)(entry.count - 3) * 4; k++) {
        if (name[k] != 0) continue;
        out.entry_point = name;
        return true;
    }
    bad_spirv(failure, module.entry_at) << "the name of the entry point does not end";
    return false;
}

inline bool read_scanned_spirv(SpirvModule &module, SpirvInfo &out, Failure &failure) {
    if (!read_entry_name(module, out, failure)) return false;
    if (!read_local_size(module, out, failure)) return false;
    if (!read_variables(module, out, failure)) return false;
    out.features |= module.features;
    if (module.functions != 1) out.not_relocatable("it has more than one function");
    if (module.grid_built_ins) out.not_relocatable("it reads a built-in that depends on the whole grid");
    read_uses(module, out);
    out.relocatable = out.why_not == nullptr;
    return true;
}

// Fills out, which must be fresh or released. On failure out is released.
inline bool read_spirv(const uint32_t *words, size_t count, SpirvInfo &out, Failure &failure) {
    SpirvModule module;
    const bool ok = scan_spirv(words, count, module, failure) && read_scanned_spirv(module, out, failure);
    module.release();
    if (!ok) out.release();
    return ok;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_SPIRV_H
