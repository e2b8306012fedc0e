# src/runtime/vulkan.cpp -> LLVM bitcode, once per flavour that libHalide may ask for.
#
# libHalide carries its runtime as eight arrays of bitcode: posix or Windows, 32 or 64 bits, release or debug. Which one
# is linked into a pipeline depends on the target alone, so all eight are made. The compiler must be clang-19: bitcode is
# readable by the same or a later LLVM only, and the oldest Halide we serve has LLVM 19.
#
# The flags are those of an optimised freestanding module that another LLVM finishes: no exceptions, no RTTI, no guards,
# no vectors and no jump tables. One include folder serves all triples: clang does not look into the system's folder
# for the Windows ones, and glibc's headers must not be seen by any, so the Vulkan headers are reached through links in
# a folder of their own (-nostdlibinc).

find_program(HV_CLANG NAMES clang++-19 clang-19 REQUIRED DOC "clang 19, which makes the bitcode")
find_path(HV_VULKAN_INCLUDE vulkan/vulkan.h REQUIRED DOC "Folder that holds vulkan/ and vk_video/")

set(HV_VULKAN_HEADERS "${PROJECT_BINARY_DIR}/vulkan-headers")
file(MAKE_DIRECTORY "${HV_VULKAN_HEADERS}")
foreach (folder IN ITEMS vulkan vk_video)
    file(CREATE_LINK "${HV_VULKAN_INCLUDE}/${folder}" "${HV_VULKAN_HEADERS}/${folder}" SYMBOLIC)
endforeach ()

# JIT runs no optimisation over the runtime's module, so what is shipped must be optimised. -O0 builds in a tenth of the
# time (0.3 s a flavour against 2.5) and is for debugging the runtime, and for tests that look at the build alone.
set(HV_BITCODE_OPTIMIZATION -O3 CACHE STRING "Optimisation level of the bitcode")

set(HV_BITCODE_FLAGS
    ${HV_BITCODE_OPTIMIZATION} -std=c++17 -ffreestanding -nostdlibinc -fno-blocks -fno-exceptions -fno-unwind-tables
    -fno-vectorize -fno-threadsafe-statics -fno-rtti -fno-jump-tables -fno-stack-protector
    -Wall -Wextra -Wno-missing-field-initializers -Werror -DCOMPILING_HALIDE_RUNTIME
)

# hv_add_bitcode(SOURCE OUT): makes the eight flavours of SOURCE; OUT lists "NAME;FILE" pairs, flattened. The Windows
# ones are made of windows_SOURCE beside it. The target hv_syntax only looks whether all of them would compile.
function (hv_add_bitcode source out)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET source FILENAME file)
    set(result "")
    set(syntax "")
    foreach (system IN ITEMS "" windows_)
        foreach (bits IN ITEMS 32 64)
            foreach (flavour IN ITEMS "" _debug)
                set(name "${system}vulkan_${bits}${flavour}")
                set(output "${PROJECT_BINARY_DIR}/bitcode/${name}.bc")
                set(flags ${HV_BITCODE_FLAGS} -m${bits} -DBITS_${bits})
                set(arch i386)
                if (bits EQUAL 64)
                    set(arch x86_64)
                endif ()
                if (system)
                    list(APPEND flags -target ${arch}-unknown-windows-unknown)
                    if (bits EQUAL 64)
                        list(APPEND flags -fshort-wchar)
                    endif ()
                else ()
                    list(APPEND flags -target ${arch}-unknown-unknown-unknown -fpic)
                endif ()
                if (flavour)
                    list(APPEND flags -g -DDEBUG_RUNTIME)
                endif ()
                list(
                    APPEND flags
                    -I "${PROJECT_SOURCE_DIR}/src/runtime" -I "${PROJECT_SOURCE_DIR}/src/shim"
                    -isystem "${HV_HALIDE_INCLUDE}" -isystem "${HV_VULKAN_HEADERS}"
                )
                add_custom_command(
                    OUTPUT "${output}"
                    COMMAND
                        "${HV_CLANG}" ${flags}
                        -MD -MF "${output}.d" -MT "${output}"
                        -emit-llvm -c "${folder}/${system}${file}" -o "${output}"
                    DEPENDS "${folder}/${system}${file}"
                    DEPFILE "${output}.d"
                    COMMENT "Bitcode ${name}"
                    VERBATIM
                )
                list(APPEND result "${name}" "${output}")
                list(APPEND syntax COMMAND "${HV_CLANG}" ${flags} -fsyntax-only "${folder}/${system}${file}")
            endforeach ()
        endforeach ()
    endforeach ()
    file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/bitcode")
    add_custom_target(hv_syntax ${syntax} COMMENT "Syntax of the runtime" VERBATIM)
    set(${out} "${result}" PARENT_SCOPE)
endfunction ()
