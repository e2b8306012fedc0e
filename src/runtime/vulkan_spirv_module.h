// vulkan_spirv_module.h: a bounds-checked index over the words of a SPIR-V module. [pure]
//
// The reader (vulkan_spirv.h) and the patcher (vulkan_spirv_patch.h) both ask "what defines this id, how is it
// decorated, where do the sections begin". This header answers, for the part of the grammar they need.
//
// Why not trust the module: a driver given a damaged one may crash, and so might we. The scan checks the word count of
// every instruction and every id it files; ids are limited by the bound, which is limited itself; each pass is one walk
// over the words. After a scan that succeeded, walking the module by word counts is safe, and ids met on the way need
// only valid().
//
// Thread rule: unsafe, the owner locks. Ownership: SpirvModule owns its index, and points at the given words. A scan
// allocates host memory: a kernel is read once and patched once per variant. Errors: false, with the word concerned.

#ifndef HALIDE_VULKAN_SPIRV_MODULE_H
#define HALIDE_VULKAN_SPIRV_MODULE_H

#include "vulkan_blob.h"
#include "vulkan_features.h"

namespace halide_vulkan {
namespace {

// An id costs the scan a few dozen bytes. The modules Halide makes have some hundred to ten thousand ids.
constexpr uint32_t kMaxSpirvBound = 1u << 20;
// Offsets of words are 32 bits wide; a gigabyte of SPIR-V is damage.
constexpr size_t kMaxSpirvWords = (size_t)1 << 28;
// Beyond these versions the grammar is not known to this file.
constexpr uint32_t kMinSpirvVersion = 0x00010000u, kMaxSpirvVersion = 0x00010600u;

// Numbers from the SPIR-V specification, under its names.
enum SpirvOp : uint32_t {
    kOpExtInst = 12,
    kOpMemoryModel = 14,
    kOpEntryPoint = 15,
    kOpExecutionMode = 16,
    kOpCapability = 17,
    kOpTypeInt = 21,
    kOpTypeFloat = 22,
    kOpTypeVector = 23,
    kOpTypeArray = 28,
    kOpTypeRuntimeArray = 29,
    kOpTypeStruct = 30,
    kOpTypePointer = 32,
    kOpConstant = 43,
    kOpConstantComposite = 44,
    kOpConstantNull = 46,
    kOpSpecConstant = 50,
    kOpSpecConstantComposite = 51,
    kOpSpecConstantOp = 52,
    kOpFunction = 54,
    kOpVariable = 59,
    kOpLoad = 61,
    kOpStore = 62,
    kOpCopyMemory = 63,
    kOpAccessChain = 65,
    kOpInBoundsAccessChain = 66,
    kOpDecorate = 71,
    kOpMemberDecorate = 72,
    kOpDecorationGroup = 73,
    kOpGroupMemberDecorate = 75,
    kOpVectorShuffle = 79,
    kOpCompositeExtract = 81,
    kOpCompositeInsert = 82,
    kOpSConvert = 114,
    kOpIAdd = 128,
    kOpShiftRightLogical = 194,
    kOpShiftRightArithmetic = 195,
    kOpLoopMerge = 246,
    kOpLabel = 248,
    kOpUnreachable = 255,
    kOpNoLine = 317,
    kOpModuleProcessed = 330,
    kOpExecutionModeId = 331,
    kOpDecorateId = 332,
    kOpDecorateString = 5632,
    kOpMemberDecorateString = 5633,
};
enum SpirvStorageClass : uint32_t {
    kClassInput = 1,
    kClassUniform = 2,
    kClassWorkgroup = 4,
    kClassPrivate = 6,
    kClassFunction = 7,
    kClassPushConstant = 9,
    kClassStorageBuffer = 12,
};
enum SpirvDecoration : uint32_t {
    kDecorationSpecId = 1,
    kDecorationBlock = 2,
    kDecorationBufferBlock = 3,
    kDecorationArrayStride = 6,
    kDecorationBuiltIn = 11,
    kDecorationBinding = 33,
    kDecorationDescriptorSet = 34,
    kDecorationOffset = 35,
};
enum SpirvBuiltIn : uint32_t {
    kBuiltInNumWorkgroups = 24,
    kBuiltInWorkgroupSize = 25,
    kBuiltInWorkgroupId = 26,
    kBuiltInGlobalInvocationId = 28,
};
constexpr uint32_t kModelGLCompute = 5;
constexpr uint32_t kModeLocalSize = 17, kModeLocalSizeId = 38;

// What a scan knows of one id.
struct SpirvId {
    enum : uint8_t { kSet = 1, kBinding = 2, kBlock = 4, kBufferBlock = 8, kBuiltIn = 16, kSpecId = 32 };
    uint32_t at;      // first word of the defining instruction; 0 = not defined by one this file knows
    uint32_t number;  // Binding of a variable, ArrayStride of a type, SpecId of a constant
    uint32_t set;
    uint32_t origin;  // which tracked variable a pointer leads to, as kOrigin...
    uint16_t built_in;
    uint8_t has;
};
constexpr uint32_t kOriginNone = 0, kOriginGroupId = 1, kOriginFirstBuffer = 2;

// One instruction.
struct SpirvInstruction {
    const uint32_t *words;
    uint32_t at, count, op;
    uint32_t operator[](uint32_t i) const { return words[i]; }
};

// Instructions of the form { type, result, ... }.
inline bool spirv_has_type_and_result(uint32_t op) {
    return op == 1 || op == kOpExtInst || (op >= 41 && op <= 46) || (op >= 48 && op <= 52) || op == 54 || op == 55 ||
           op == 57 || (op >= 59 && op <= 61) || (op >= 65 && op <= 70) || (op >= 77 && op <= 84) ||
           (op >= 86 && op <= 98) || (op >= 100 && op <= 107) || (op >= 109 && op <= 124) || (op >= 126 && op <= 152) ||
           (op >= 154 && op <= 191) || (op >= 194 && op <= 205) || (op >= 207 && op <= 215) || op == 227 ||
           (op >= 229 && op <= 242) || op == 245 || (op >= 333 && op <= 366) || (op >= 400 && op <= 403);
}
// Instructions of the form { result, ... }: types, strings, imports, labels.
inline bool spirv_has_result_only(uint32_t op) {
    return op == 7 || op == 11 || (op >= 19 && op <= 38) || op == kOpDecorationGroup || op == kOpLabel;
}

// A module with an index of its ids.
struct SpirvModule {
    const uint32_t *words = nullptr;
    uint32_t count = 0;
    uint32_t version = 0, bound = 0;
    Array<SpirvId> ids;
    uint32_t entry_at = 0;        // OpEntryPoint
    uint32_t entry_function = 0;  // its function
    uint32_t annotations_at = 0;  // first OpDecorate or the like, where new ones may stand
    uint32_t functions_at = 0;    // first OpFunction, before which new global declarations may stand
    uint32_t functions = 0;
    uint32_t features = 0;        // Feature bits of its capabilities
    uint32_t size_constant = 0;   // id decorated BuiltIn WorkgroupSize; 0 = none
    bool grid_built_ins = false;  // some built-in other than WorkgroupId depends on the grid

    void release() { ids.release(); }

    // The instruction that begins at a word. Only for places the scan has visited.
    SpirvInstruction instruction(uint32_t at) const {
        return SpirvInstruction{words + at, at, words[at] >> 16, words[at] & 0xffffu};
    }
    bool valid(uint32_t id) const { return id != 0 && id < bound; }
    // The definition of an id, if its opcode is op and it has at least min_words; else one of count 0.
    SpirvInstruction definition(uint32_t id, uint32_t op, uint32_t min_words) const {
        const SpirvInstruction none{nullptr, 0, 0, 0};
        if (!valid(id) || ids[id].at == 0) return none;
        const SpirvInstruction i = instruction(ids[id].at);
        return i.op == op && i.count >= min_words ? i : none;
    }
    bool is_int(uint32_t type, uint32_t bits) const {
        const SpirvInstruction i = definition(type, kOpTypeInt, 4);
        return i.count != 0 && i[2] == bits;
    }
    // A signed integer, or a vector of them.
    bool is_signed(uint32_t type) const {
        const SpirvInstruction vector = definition(type, kOpTypeVector, 4);
        const SpirvInstruction i = definition(vector.count ? vector[2] : type, kOpTypeInt, 4);
        return i.count != 0 && i[3] != 0;
    }
    // The type of a value; 0 where not known.
    uint32_t type_of(uint32_t id) const {
        if (!valid(id) || ids[id].at == 0) return 0;
        const SpirvInstruction i = instruction(ids[id].at);
        return spirv_has_type_and_result(i.op) ? i[1] : 0;
    }
    // The value of a 32-bit integer constant; the default one of a specialization constant.
    bool integer(uint32_t id, uint32_t *value, uint32_t *spec_id) const {
        *value = *spec_id = 0;
        SpirvInstruction i = definition(id, kOpConstant, 4);
        if (i.count == 0 && (i = definition(id, kOpSpecConstant, 4)).count != 0) *spec_id = ids[id].number;
        if (i.count != 0)
            *value = i[3];
        else
            i = definition(id, kOpConstantNull, 3);
        return i.count != 0 && is_int(i[1], 32);
    }
    // Is id a constant of this value, which no specialization changes?
    bool is_fixed(uint32_t id, uint32_t *value) const {
        uint32_t spec_id;
        return integer(id, value, &spec_id) && definition(id, kOpSpecConstant, 0).count == 0;
    }
};

inline Text bad_spirv(Failure &failure, uint32_t at) {
    return failure.because(kInternalError) << "Vulkan: damaged SPIR-V at word " << at << ": ";
}
inline bool spirv_out_of_memory(Failure &failure) {
    failure.because(kOutOfMemory) << "Vulkan: out of host memory while reading SPIR-V";
    return false;
}

// Records one decoration of an id.
inline bool note_decoration(SpirvModule &module, const SpirvInstruction &i, Failure &failure) {
    if (i.count < 3 || !module.valid(i[1])) {
        bad_spirv(failure, i.at) << "a decoration of " << i.count << " words for id " << (i.count > 1 ? i[1] : 0)
                                 << ", bound " << module.bound;
        return false;
    }
    SpirvId &id = module.ids[i[1]];
    const uint32_t decoration = i[2];
    const bool with_number = decoration == kDecorationSpecId || decoration == kDecorationArrayStride ||
                             decoration == kDecorationBuiltIn || decoration == kDecorationBinding ||
                             decoration == kDecorationDescriptorSet;
    if (with_number && i.count < 4) {
        bad_spirv(failure, i.at) << "decoration " << decoration << " has no value";
        return false;
    }
    switch (decoration) {
    case kDecorationBlock: id.has |= SpirvId::kBlock; break;
    case kDecorationBufferBlock: id.has |= SpirvId::kBufferBlock; break;
    case kDecorationArrayStride: id.number = i[3]; break;
    case kDecorationSpecId: id.number = i[3], id.has |= SpirvId::kSpecId; break;
    case kDecorationBinding: id.number = i[3], id.has |= SpirvId::kBinding; break;
    case kDecorationDescriptorSet: id.set = i[3], id.has |= SpirvId::kSet; break;
    case kDecorationBuiltIn:
        id.built_in = (uint16_t)min_of<uint32_t>(i[3], 0xffffu), id.has |= SpirvId::kBuiltIn;
        if (i[3] == kBuiltInWorkgroupSize) module.size_constant = i[1];
        if (i[3] == kBuiltInNumWorkgroups || i[3] == kBuiltInGlobalInvocationId) module.grid_built_ins = true;
        break;
    default: break;
    }
    return true;
}

// Notes what the other passes need of one instruction.
inline bool scan_instruction(SpirvModule &module, const SpirvInstruction &i, Failure &failure) {
    const bool typed = spirv_has_type_and_result(i.op);
    if (typed || spirv_has_result_only(i.op)) {
        const uint32_t result_at = typed ? 2 : 1;
        const uint32_t id = i.count > result_at ? i[result_at] : 0;
        if (!module.valid(id) || module.ids[id].at != 0) {
            bad_spirv(failure, i.at) << "instruction " << i.op << " of " << i.count << " words defines id " << id
                                     << ", which is " << (module.valid(id) ? "defined already" : "not valid")
                                     << ", bound " << module.bound;
            return false;
        }
        module.ids[id].at = i.at;
    }
    if (i.op >= kOpDecorate && i.op <= kOpMemberDecorate && module.annotations_at == 0) module.annotations_at = i.at;
    switch (i.op) {
    case kOpCapability:
        if (i.count >= 2) module.features |= feature_of_capability(i[1]);
        return true;
    case kOpDecorate: return note_decoration(module, i, failure);
    case kOpMemberDecorate:
        if (i.count >= 4 && i[3] == kDecorationBuiltIn) module.grid_built_ins = true;
        return true;
    case kOpDecorationGroup: bad_spirv(failure, i.at) << "decoration groups are not supported"; return false;
    case kOpMemoryModel:
        if (i.count >= 3 && i[1] == 0) return true;
        bad_spirv(failure, i.at) << "the addressing model is not Logical";
        return false;
    case kOpEntryPoint:
        // A name of one word or more follows the function.
        if (i.count < 4 || i[1] != kModelGLCompute || module.entry_at != 0) {
            bad_spirv(failure, i.at) << "one compute entry point expected";
            return false;
        }
        module.entry_at = i.at;
        module.entry_function = i[2];
        return true;
    case kOpFunction:
        if (module.functions++ == 0) module.functions_at = i.at;
        return true;
    default: return true;
    }
}

// Indexes a module. On failure the caller still releases it.
inline bool scan_spirv(const uint32_t *words, size_t count, SpirvModule &module, Failure &failure) {
    if (!words || count < kSpirvHeaderWords || count > kMaxSpirvWords) {
        bad_spirv(failure, 0) << "a module of " << (uint64_t)count << " words, " << kSpirvHeaderWords << " to "
                              << (uint64_t)kMaxSpirvWords << " possible";
        return false;
    }
    if (words[0] != kSpirvMagic || words[1] < kMinSpirvVersion || words[1] > kMaxSpirvVersion || words[3] == 0 ||
        words[3] > kMaxSpirvBound) {
        (bad_spirv(failure, 0) << "the header has magic number ").hex(words[0]).operator<<(", version ").hex(words[1])
            << ", bound " << words[3] << "; versions 1.0 to 1.6 and bounds to " << kMaxSpirvBound << " supported";
        return false;
    }
    module.words = words;
    module.count = (uint32_t)count;
    module.version = words[1];
    module.bound = words[3];
    if (!module.ids.resize(module.bound)) return spirv_out_of_memory(failure);

    for (uint32_t at = kSpirvHeaderWords; at < module.count;) {
        const SpirvInstruction i = module.instruction(at);
        if (i.count == 0 || i.count > module.count - at) {
            bad_spirv(failure, at) << "an instruction of " << i.count << " words, " << module.count - at << " are left";
            return false;
        }
        if (!scan_instruction(module, i, failure)) return false;
        at += i.count;
    }
    if (module.entry_at == 0 || module.definition(module.entry_function, kOpFunction, 5).count == 0) {
        bad_spirv(failure, module.entry_at) << "there is no entry point with a function";
        return false;
    }
    return true;
}

// Which words of an instruction may be ids of pointers that the instruction uses: [first, last). Instructions that
// only declare, annotate or branch have none; for those not listed, every word counts, literals included, which errs
// on the safe side.
inline void spirv_used_words(const SpirvInstruction &i, uint32_t *first, uint32_t *last) {
    *first = spirv_has_type_and_result(i.op) ? 3 : 1;
    *last = i.count;
    switch (i.op) {
    case kOpLoad:
    case kOpCompositeExtract: *last = 4; break;
    case kOpVectorShuffle:
    case kOpCompositeInsert: *last = 5; break;
    case kOpStore:
    case kOpCopyMemory: *last = 3; break;
    case kOpExtInst: *first = 5; break;
    case kOpVariable:
    case kOpSpecConstantOp: *first = 4; break;
    case kOpFunction:
    case kOpNoLine:
    case kOpModuleProcessed:
    case kOpExecutionModeId:
    case kOpDecorateId:
    case kOpDecorateString:
    case kOpMemberDecorateString: *last = 0; break;
    default:
        // Up to OpSpecConstantComposite: debug information, modes, types, constants. Then annotations, then branches.
        if ((i.op <= kOpSpecConstantComposite && i.op != 1) ||
            (i.op >= kOpDecorate && i.op <= kOpGroupMemberDecorate) ||
            (i.op >= kOpLoopMerge && i.op <= kOpUnreachable && i.op != 254)) {
            *last = 0;
        }
        break;
    }
    if (*last > i.count) *last = i.count;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_SPIRV_MODULE_H
