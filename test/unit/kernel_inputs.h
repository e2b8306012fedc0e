// kernel_inputs.h: the inputs of the blob and SPIR-V tests, and the SPIR-V tools as functions.
//
// Inputs are handed out in exactly sized heap arrays, so that the address sanitizer sees a read past their end.

#ifndef HALIDE_VULKAN_TEST_KERNEL_INPUTS_H
#define HALIDE_VULKAN_TEST_KERNEL_INPUTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

using Words = std::vector<uint32_t>;

static const char *const kBlobs[] = {"grid3", "copy_u8", "vec", "gather", "multi", "dyny", "dynshared", "large"};

inline std::string source_folder() {
    const std::string file = __FILE__;
    return file.substr(0, file.find_last_of('/') + 1);
}

inline std::string read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline Words to_words(const std::string &bytes) {
    Words words(bytes.size() / 4);
    if (!words.empty()) memcpy(words.data(), bytes.data(), words.size() * 4);
    return words;
}

inline Words blob_words(const std::string &name) {
    return to_words(read_file(source_folder() + "data/" + name + ".blob"));
}

// A copy whose allocation ends where its words end.
class Exact {
public:
    Exact(const uint32_t *words, size_t count) : words(new uint32_t[count]) {
        if (count) memcpy(this->words.get(), words, count * 4);
    }
    const uint32_t *get() const { return words.get(); }

private:
    std::unique_ptr<uint32_t[]> words;
};

// Runs one of the SPIR-V tools with a file as its input: what it wrote, and its exit status.
inline std::string run_tool(const std::string &command, const std::string &input, int *status) {
    char folder[] = "/tmp/halide-vulkan-unit-XXXXXX";
    if (!mkdtemp(folder)) {
        *status = -1;
        return "no temporary folder";
    }
    const std::string in = std::string(folder) + "/in", out = std::string(folder) + "/out";
    std::ofstream(in, std::ios::binary).write(input.data(), (std::streamsize)input.size());
    *status = system((command + " " + in + " > " + out + " 2>&1").c_str());
    const std::string text = read_file(out);
    remove(in.c_str());
    remove(out.c_str());
    remove(folder);
    return text;
}

inline std::string words_as_bytes(const uint32_t *words, size_t count) { return {(const char *)words, count * 4}; }

// Empty where the module is valid, else what the validator says.
inline std::string validate(const uint32_t *words, size_t count, const std::string &environment) {
    int status;
    const std::string text = run_tool("spirv-val --target-env " + environment, words_as_bytes(words, count), &status);
    return status == 0 ? "" : "spirv-val: " + text;
}

inline Words assemble(const std::string &text, const std::string &version = "spv1.2") {
    int status;
    const std::string command = "spirv-as --preserve-numeric-ids --target-env " + version + " -o -";
    const std::string bytes = run_tool(command, text, &status);
    if (status == 0) return to_words(bytes);
    fprintf(stderr, "spirv-as: %s\n", bytes.c_str());
    return {};
}

inline std::string disassemble(const uint32_t *words, size_t count) {
    int status;
    return run_tool("spirv-dis --no-header --no-indent --raw-id", words_as_bytes(words, count), &status);
}

#endif  // HALIDE_VULKAN_TEST_KERNEL_INPUTS_H
