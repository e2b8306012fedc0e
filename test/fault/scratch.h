// scratch.h: a folder of this process, which goes with it.

#ifndef HALIDE_VULKAN_FAULT_SCRATCH_H
#define HALIDE_VULKAN_FAULT_SCRATCH_H

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace fault {

namespace fs = std::filesystem;

class Scratch {
public:
    static const fs::path &folder() {
        static const Scratch it;
        return it.path;
    }

private:
    fs::path path;
    Scratch() {
        std::string name = (fs::temp_directory_path() / "halide-fault-XXXXXX").string();
        if (!mkdtemp(name.data())) abort();
        path = name;
    }
    ~Scratch() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
};

}  // namespace fault

#endif
