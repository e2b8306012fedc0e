// vulkan_spirv_patch.h: rewrites the SPIR-V of a kernel for one pipeline variant. [pure]
//
// Three things a kernel as compiled gets wrong or cannot do:
//
// Local size. Halide writes LocalSizeId into SPIR-V 1.2 (which needs Vulkan 1.3 and maintenance4), and where only the y
// or z size is dynamic it writes literal ones that are wrong. The launch knows the true size, so a patched module
// always has the literal LocalSize of its variant. A constant that is the WorkgroupSize built-in is rewritten as well,
// as it would take precedence.
//
// Signed shifts. Halide shifts a signed value to the right as if it were unsigned where the amount is unsigned, as it
// does to divide by a constant: -56 / 7 is 4 then. In Halide such a shift keeps the sign (there is no other for signed
// types), so where the result has a signed type the instruction becomes the arithmetic one.
//
// Place. A buffer must be bound at a multiple of the device's descriptor alignment, but a crop may start at any
// element; and a grid may have more groups than the device dispatches at once. The relocated variant reads push
// constants: it adds base_group to the WorkgroupId built-in where that is loaded, and index_offset[k] to each index
// into the k-th buffer (in binding order) where an access chain is made. These sums cost a few integer additions, so
// the variant is for launches that need it.
//
//     push constants: uint32 base_group[3] at 0, 4, 8; int32 index_offset[k] at 16 + 4 * k
//
// How: the module is copied instruction by instruction. New decorations go before the first decoration, new types and
// constants before the first function (so all earlier ones may be used), the loads of push constants after the
// variables of the first block, which dominates everything. Integers and vectors must not be declared twice in SPIR-V:
// those present are used again. A result that changes keeps its id: the original instruction gets a new one, the
// addition the old.
//
// Thread rule: none needed, no shared state. Ownership: out is the caller's. Errors: false, and out is of no use.

#ifndef HALIDE_VULKAN_SPIRV_PATCH_H
#define HALIDE_VULKAN_SPIRV_PATCH_H

#include "vulkan_spirv.h"

namespace halide_vulkan {
namespace {

struct SpirvPatch {
    uint32_t local_size[3];
    bool relocate;
};

// Where the index offsets begin in the push constants: base_group takes 12 bytes, 16 keeps the block's layout legal
// for any kind of member.
constexpr uint32_t kIndexOffsetsAt = 16;
// Bytes of push constants of a relocated module. Devices offer at least 128: that is 28 buffers.
inline uint32_t relocation_bytes(size_t buffers) { return kIndexOffsetsAt + 4 * (uint32_t)buffers; }

// The first version whose OpEntryPoint lists all global variables it uses, not inputs and outputs alone.
constexpr uint32_t kSpirvVersionListsAll = 0x00010400u;

// Appends instructions. Running out of memory sticks and is asked for at the end.
class SpirvWriter {
public:
    explicit SpirvWriter(Array<uint32_t> &out) : out(out) {}
    void word(uint32_t w) { ok = ok && out.push(w); }
    template<typename... Operands>
    void emit(uint32_t op, Operands... operands) {
        word((uint32_t)(1 + sizeof...(operands)) << 16 | op);
        (word(operands), ...);
    }
    void copy(const uint32_t *words, uint32_t count) {
        for (uint32_t k = 0; k < count; k++) word(words[k]);
    }
    // A copy with one word replaced.
    void copy_with(const SpirvInstruction &i, uint32_t at, uint32_t replacement) {
        for (uint32_t k = 0; k < i.count; k++) word(k == at ? replacement : i[k]);
    }
    bool ok = true;

private:
    Array<uint32_t> &out;
};

// The ids that a relocated module gains. An id of 0 is not needed.
struct SpirvRelocation {
    bool needed = false;
    bool base_needed = false;
    uint32_t after = 0;  // the instruction after which push constants are loaded
    uint32_t type_int = 0, type_uint = 0, type_uint3 = 0, type_block = 0;
    uint32_t pointer_block = 0, pointer_uint3 = 0, pointer_int = 0;
    bool new_int = false, new_uint = false, new_uint3 = false;
    uint32_t variable = 0, base = 0;
    uint32_t member_constants = 0;  // the first of buffers + 1 constants, one per member
    Array<uint32_t> offsets;        // per buffer: its loaded index offset
};

// A patch in the making.
struct SpirvPatcher {
    SpirvModule module;
    const SpirvInfo &info;
    const SpirvPatch &patch;
    SpirvWriter writer;
    SpirvRelocation relocation;
    uint32_t next_id = 0;

    SpirvPatcher(const SpirvInfo &info, const SpirvPatch &patch, Array<uint32_t> &out)
        : info(info), patch(patch), writer(out) {}
    uint32_t fresh() { return next_id++; }
    uint32_t origin(uint32_t id) const { return module.valid(id) ? module.ids[id].origin : kOriginNone; }
    void release() {
        module.release();
        relocation.offsets.release();
    }

    // Does this chain index a buffer, not an element of one?
    bool indexes_buffer(const SpirvInstruction &i) const {
        return is_access_chain(i) && i.count >= 6 && origin(i[3]) >= kOriginFirstBuffer && is_variable(module, i[3]);
    }
    bool loads_group_id(const SpirvInstruction &i) const {
        return i.op == kOpLoad && i.count >= 4 && origin(i[3]) == kOriginGroupId;
    }
};

// Finds which of the types needed are there already.
inline void find_relocation_types(SpirvPatcher &p) {
    SpirvRelocation &r = p.relocation;
    for (uint32_t at = kSpirvHeaderWords; at < p.module.functions_at; at += p.module.instruction(at).count) {
        const SpirvInstruction i = p.module.instruction(at);
        if (i.count != 4) continue;
        if (i.op == kOpTypeInt && i[2] == 32) (i[3] ? r.type_int : r.type_uint) = i[1];
    }
    for (uint32_t at = kSpirvHeaderWords; at < p.module.functions_at; at += p.module.instruction(at).count) {
        const SpirvInstruction i = p.module.instruction(at);
        if (i.count != 4) continue;
        if (i.op == kOpTypeVector && r.type_uint && i[2] == r.type_uint && i[3] == 3) r.type_uint3 = i[1];
    }
    r.new_int = r.type_int == 0;
    r.new_uint = r.type_uint == 0;
    r.new_uint3 = r.type_uint3 == 0;
    if (r.new_int) r.type_int = p.fresh();
    if (r.new_uint) r.type_uint = p.fresh();
    if (r.new_uint3) r.type_uint3 = p.fresh();
}

// Where the variables of the entry function's first block end.
inline uint32_t find_first_block(const SpirvModule &module) {
    uint32_t after = 0;
    for (uint32_t at = module.functions_at; at < module.count; at += module.instruction(at).count) {
        const SpirvInstruction i = module.instruction(at);
        if (i.op == kOpLabel) {
            if (after != 0) break;
            after = at;
        }
        if (after != 0 && i.op == kOpVariable) after = at;
        if (i.op > kOpLabel && i.op <= kOpUnreachable) break;
    }
    return after;
}

// Works out what relocation adds, and gives it ids.
inline bool plan_relocation(SpirvPatcher &p, Failure &failure) {
    SpirvRelocation &r = p.relocation;
    mark_spirv_variables(p.module, p.info);
    follow_access_chains(p.module);
    if (!r.offsets.resize(p.info.buffers.size())) return spirv_out_of_memory(failure);
    for (uint32_t at = p.module.functions_at; at < p.module.count; at += p.module.instruction(at).count) {
        const SpirvInstruction i = p.module.instruction(at);
        if (p.loads_group_id(i)) r.needed = r.base_needed = true;
        if (!p.indexes_buffer(i)) continue;
        r.needed = true;
        uint32_t &offset = r.offsets[p.origin(i[3]) - kOriginFirstBuffer];
        if (offset == 0) offset = p.fresh();
    }
    if (!r.needed) return true;

    r.after = find_first_block(p.module);
    if (r.after == 0 || p.module.annotations_at == 0) {
        bad_spirv(failure, p.module.functions_at) << "a function without a block, or a module without decorations";
        return false;
    }
    find_relocation_types(p);
    r.type_block = p.fresh();
    r.pointer_block = p.fresh();
    r.pointer_uint3 = p.fresh();
    r.pointer_int = p.fresh();
    r.variable = p.fresh();
    r.base = p.fresh();
    r.member_constants = p.next_id;
    p.next_id += 1 + (uint32_t)p.info.buffers.size();
    return true;
}

inline void write_decorations(SpirvPatcher &p) {
    const SpirvRelocation &r = p.relocation;
    p.writer.emit(kOpMemberDecorate, r.type_block, 0u, kDecorationOffset, 0u);
    for (uint32_t k = 0; k < p.info.buffers.size(); k++) {
        p.writer.emit(kOpMemberDecorate, r.type_block, k + 1, kDecorationOffset, relocation_bytes(k));
    }
    p.writer.emit(kOpDecorate, r.type_block, kDecorationBlock);
}

inline void write_declarations(SpirvPatcher &p) {
    const SpirvRelocation &r = p.relocation;
    const uint32_t buffers = (uint32_t)p.info.buffers.size();
    if (r.new_int) p.writer.emit(kOpTypeInt, r.type_int, 32u, 1u);
    if (r.new_uint) p.writer.emit(kOpTypeInt, r.type_uint, 32u, 0u);
    if (r.new_uint3) p.writer.emit(kOpTypeVector, r.type_uint3, r.type_uint, 3u);
    p.writer.word((3 + buffers) << 16 | kOpTypeStruct);
    p.writer.word(r.type_block);
    p.writer.word(r.type_uint3);
    for (uint32_t k = 0; k < buffers; k++) p.writer.word(r.type_int);
    p.writer.emit(kOpTypePointer, r.pointer_block, kClassPushConstant, r.type_block);
    p.writer.emit(kOpTypePointer, r.pointer_uint3, kClassPushConstant, r.type_uint3);
    p.writer.emit(kOpTypePointer, r.pointer_int, kClassPushConstant, r.type_int);
    for (uint32_t k = 0; k <= buffers; k++) p.writer.emit(kOpConstant, r.type_int, r.member_constants + k, k);
    p.writer.emit(kOpVariable, r.pointer_block, r.variable, kClassPushConstant);
}

// The loads of push constants, at the head of the entry function.
inline void write_loads(SpirvPatcher &p) {
    const SpirvRelocation &r = p.relocation;
    if (r.base_needed) {
        const uint32_t pointer = p.fresh();
        p.writer.emit(kOpAccessChain, r.pointer_uint3, pointer, r.variable, r.member_constants);
        p.writer.emit(kOpLoad, r.type_uint3, r.base, pointer);
    }
    for (uint32_t k = 0; k < r.offsets.size(); k++) {
        if (r.offsets[k] == 0) continue;
        const uint32_t pointer = p.fresh();
        p.writer.emit(kOpAccessChain, r.pointer_int, pointer, r.variable, r.member_constants + k + 1);
        p.writer.emit(kOpLoad, r.type_int, r.offsets[k], pointer);
    }
}

// The load keeps its place under a new id; the sum takes the old id. Addition allows operands of either signedness.
inline void write_group_id_load(SpirvPatcher &p, const SpirvInstruction &i) {
    const SpirvRelocation &r = p.relocation;
    const uint32_t loaded = p.fresh();
    p.writer.copy_with(i, 2, loaded);
    uint32_t base = r.base;
    const SpirvInstruction chain = p.module.instruction(p.module.ids[i[3]].at);
    if (is_access_chain(chain)) {
        uint32_t component = 0;
        p.module.is_fixed(chain[chain.count - 1], &component);
        base = p.fresh();
        p.writer.emit(kOpCompositeExtract, r.type_uint, base, r.base, component);
    }
    p.writer.emit(kOpIAdd, i[1], i[2], loaded, base);
}

inline void write_buffer_access(SpirvPatcher &p, const SpirvInstruction &i) {
    uint32_t offset = p.relocation.offsets[p.origin(i[3]) - kOriginFirstBuffer];
    const uint32_t type = p.module.type_of(i[5]);
    if (p.module.is_int(type, 64)) {  // large buffers
        const uint32_t narrow = offset;
        offset = p.fresh();
        p.writer.emit(kOpSConvert, type, offset, narrow);
    }
    const uint32_t index = p.fresh();
    p.writer.emit(kOpIAdd, type, index, i[5], offset);
    p.writer.copy_with(i, 5, index);
}

inline void write_entry_point(SpirvPatcher &p, const SpirvInstruction &i) {
    const bool listed = p.relocation.needed && p.module.version >= kSpirvVersionListsAll;
    p.writer.word((i.count + (listed ? 1 : 0)) << 16 | i.op);
    p.writer.copy(i.words + 1, i.count - 1);
    if (listed) p.writer.word(p.relocation.variable);
    // Execution modes come after the entry points, of which there is one.
    const uint32_t *size = p.patch.local_size;
    p.writer.emit(kOpExecutionMode, i[2], kModeLocalSize, size[0], size[1], size[2]);
}

// The constant that is the WorkgroupSize built-in. Its type stands before it; new constants may be twins of others.
inline void write_size_constant(SpirvPatcher &p, const SpirvInstruction &i) {
    const SpirvInstruction vector = p.module.definition(i[1], kOpTypeVector, 4);
    uint32_t ids[3];
    for (int k = 0; k < 3; k++) {
        ids[k] = p.fresh();
        p.writer.emit(kOpConstant, vector.count ? vector[2] : 0, ids[k], p.patch.local_size[k]);
    }
    p.writer.emit(kOpConstantComposite, i[1], i[2], ids[0], ids[1], ids[2]);
}

// Where the WorkgroupSize built-in is defined; 0 = nowhere. The reader has refused anything but a composite.
inline uint32_t find_size_constant(const SpirvModule &module) {
    const SpirvInstruction fixed = module.definition(module.size_constant, kOpConstantComposite, 6);
    return fixed.count ? fixed.at : module.definition(module.size_constant, kOpSpecConstantComposite, 6).at;
}

inline bool is_local_size_mode(const SpirvModule &module, const SpirvInstruction &i) {
    return i.count >= 3 && i[1] == module.entry_function &&
           ((i.op == kOpExecutionMode && i[2] == kModeLocalSize) ||
            (i.op == kOpExecutionModeId && i[2] == kModeLocalSizeId));
}

inline void write_patched(SpirvPatcher &p) {
    const SpirvModule &module = p.module;
    const bool relocate = p.relocation.needed;
    const uint32_t size_constant_at = find_size_constant(module);
    for (uint32_t at = kSpirvHeaderWords; at < module.count; at += module.instruction(at).count) {
        const SpirvInstruction i = module.instruction(at);
        if (relocate && at == module.annotations_at) write_decorations(p);
        if (relocate && at == module.functions_at) write_declarations(p);
        if (at == module.entry_at)
            write_entry_point(p, i);
        else if (is_local_size_mode(module, i))
            continue;
        else if (size_constant_at != 0 && at == size_constant_at)
            write_size_constant(p, i);
        else if (relocate && p.loads_group_id(i))
            write_group_id_load(p, i);
        else if (relocate && p.indexes_buffer(i))
            write_buffer_access(p, i);
        else if (i.op == kOpShiftRightLogical && i.count == 5 && module.is_signed(i[1]))
            p.writer.emit(kOpShiftRightArithmetic, i[1], i[2], i[3], i[4]);
        else
            p.writer.copy(i.words, i.count);
        if (relocate && at == p.relocation.after) write_loads(p);
    }
}

inline bool patch_scanned_spirv(SpirvPatcher &p, Array<uint32_t> &out, Failure &failure) {
    // Interface lists take what is left of 16 bits of word count.
    if (p.module.instruction(p.module.entry_at).count == 0xffffu) {
        bad_spirv(failure, p.module.entry_at) << "the entry point has too many operands";
        return false;
    }
    p.next_id = p.module.bound;
    if (p.patch.relocate && !plan_relocation(p, failure)) return false;
    if (!out.reserve((size_t)p.module.count + 128 + 16 * p.info.buffers.size())) return spirv_out_of_memory(failure);
    p.writer.copy(p.module.words, kSpirvHeaderWords);
    write_patched(p);
    if (!p.writer.ok) return spirv_out_of_memory(failure);
    out[3] = p.next_id;
    return true;
}

// words and info belong together: info is what read_spirv made of these words.
inline bool patch_spirv(const uint32_t *words, size_t count, const SpirvInfo &info, const SpirvPatch &patch,
                        Array<uint32_t> &out, Failure &failure) {
    out.clear();
    if (patch.local_size[0] == 0 || patch.local_size[1] == 0 || patch.local_size[2] == 0) {
        failure.because(kInternalError) << "Vulkan: a local size of " << patch.local_size[0] << " "
                                        << patch.local_size[1] << " " << patch.local_size[2];
        return false;
    }
    if (patch.relocate && !info.relocatable) {
        failure.because(kUnimplemented) << "Vulkan: kernel " << info.entry_point << " cannot be relocated: "
                                        << (info.why_not ? info.why_not : "it was not read");
        return false;
    }
    SpirvPatcher patcher(info, patch, out);
    const bool ok = scan_spirv(words, count, patcher.module, failure) && patch_scanned_spirv(patcher, out, failure);
    patcher.release();
    if (!ok) out.clear();
    return ok;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_SPIRV_PATCH_H
