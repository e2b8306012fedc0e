# The runtime compiled for this machine, as a library that programs link, instead of bitcode inside libHalide.
#
# Sanitizers, coverage and a mock driver need the runtime's own sources as ordinary machine code. A pipeline that is
# compiled ahead of time with `no_runtime` asks for the runtime's functions by name, and Halide can make a runtime
# archive without any device API (host_runtime.a, see gpu_aot_generate); so sources, pipelines and Halide's own runtime
# meet in one link, without libHalide. The compiler is clang-19, whatever compiles the rest: a sanitizer's run-time
# library must be that of the compiler, and src/runtime needs clang anyway.
#
#   hv_add_native_runtime(NAME [FLAGS F...] [SOURCES S...])
#       static library NAME: src/runtime/vulkan.cpp compiled with FLAGS, and SOURCES likewise. It brings host_runtime.a
#       along. Any compiler can link it, as long as FLAGS need no run-time library of clang's.
#
#   hv_add_native_program(NAME RUNTIME SOURCE [FLAGS F...] [LIBRARIES FILE...] [DEPENDS D...])
#       GoogleTest program NAME of one source file, compiled and linked by clang-19 with the flags of RUNTIME.
#       The file is build/native/NAME. LIBRARIES are files, pipelines for example.
#
#   hv_add_native_pipelines(FEATURE OUT)
#       the pipelines of the ahead-of-time tests with one more target feature; OUT is their folder.

set(HV_NATIVE_DIRECTORY "${PROJECT_BINARY_DIR}/native")
file(MAKE_DIRECTORY "${HV_NATIVE_DIRECTORY}")

# As for the bitcode, but with what a debugger and a sanitizer need. Assembled here by clang, archived by CMake.
set(HV_NATIVE_RUNTIME_FLAGS
    -O1 -g -fno-omit-frame-pointer -std=c++17 -fPIC -ffreestanding -nostdlibinc -fno-exceptions -fno-rtti
    -fno-threadsafe-statics -Wall -Wextra -Wno-missing-field-initializers -Werror
    -DCOMPILING_HALIDE_RUNTIME -DBITS_64
)
set(HV_NATIVE_PROGRAM_FLAGS
    -O1 -g -fno-omit-frame-pointer -std=c++17 -fPIC -Wall -Wextra -Wno-missing-field-initializers
)

function (hv_native_object source output)
    add_custom_command(
        OUTPUT "${output}"
        COMMAND "${HV_CLANG}" ${ARGN} -MD -MF "${output}.d" -MT "${output}" -c "${source}" -o "${output}"
        DEPENDS "${source}"
        DEPFILE "${output}.d"
        COMMENT "Native object of ${source}"
        VERBATIM
    )
endfunction ()

function (hv_add_native_runtime name)
    cmake_parse_arguments(HV "" "" "FLAGS;SOURCES" ${ARGN})
    set(objects "${HV_NATIVE_DIRECTORY}/${name}.vulkan.o")
    hv_native_object(
        "${PROJECT_SOURCE_DIR}/src/runtime/vulkan.cpp" "${objects}"
        ${HV_NATIVE_RUNTIME_FLAGS} ${HV_FLAGS}
        -I "${PROJECT_SOURCE_DIR}/src/runtime" -I "${PROJECT_SOURCE_DIR}/src/shim"
        -isystem "${HV_HALIDE_ROOT}/include" -isystem "${HV_VULKAN_HEADERS}"
    )
    foreach (source IN LISTS HV_SOURCES)
        cmake_path(ABSOLUTE_PATH source)
        cmake_path(GET source STEM stem)
        set(object "${HV_NATIVE_DIRECTORY}/${name}.${stem}.o")
        hv_native_object(
            "${source}" "${object}" ${HV_NATIVE_PROGRAM_FLAGS} ${HV_FLAGS} -isystem "${HV_HALIDE_ROOT}/include"
        )
        list(APPEND objects "${object}")
    endforeach ()
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    add_library(${name} STATIC ${objects})
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX HV_NATIVE_FLAGS "${HV_FLAGS}")
    target_link_libraries(
        ${name} INTERFACE "${PROJECT_BINARY_DIR}/aot/host_runtime.a" Threads::Threads ${CMAKE_DL_LIBS}
    )
    add_dependencies(${name} hv_aot)
endfunction ()

function (hv_add_native_program name runtime source)
    cmake_parse_arguments(HV "" "" "FLAGS;LIBRARIES;DEPENDS" ${ARGN})
    cmake_path(ABSOLUTE_PATH source)
    set(output "${HV_NATIVE_DIRECTORY}/${name}")
    get_target_property(flags ${runtime} HV_NATIVE_FLAGS)
    if (NOT flags)
        set(flags "")
    endif ()
    add_custom_command(
        OUTPUT "${output}"
        COMMAND
            "${HV_CLANG}" ${HV_NATIVE_PROGRAM_FLAGS} ${flags} ${HV_FLAGS}
            -isystem "${HV_HALIDE_ROOT}/include" -I "${PROJECT_SOURCE_DIR}/src/runtime"
            -MD -MF "${output}.d" -MT "${output}" "${source}" -o "${output}"
            # The runtime finds the program's functions, and the test the runtime's, in the dynamic symbol table.
            -rdynamic
            -Wl,--start-group $<TARGET_FILE:${runtime}> ${HV_LIBRARIES} -Wl,--end-group
            "${PROJECT_BINARY_DIR}/aot/host_runtime.a"
            $<TARGET_FILE:GTest::gtest> $<TARGET_FILE:GTest::gtest_main> -lpthread -ldl
        DEPENDS "${source}" ${runtime} $<TARGET_FILE:${runtime}> ${HV_LIBRARIES} ${HV_DEPENDS}
        DEPFILE "${output}.d"
        COMMENT "Native ${name}"
        VERBATIM
    )
    add_custom_target(${name} ALL DEPENDS "${output}")
    add_dependencies(${name} hv_aot hv_count_layer)
endfunction ()

function (hv_add_native_pipelines feature out)
    set(folder "${HV_NATIVE_DIRECTORY}/pipelines_${feature}")
    add_custom_command(
        OUTPUT "${folder}/double_and_add.a" "${folder}/blur.a" "${folder}/double_and_add.h" "${folder}/blur.h"
        COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}"
        COMMAND "${HV_LAUNCHER}" $<TARGET_FILE:HalideVulkan> $<TARGET_FILE:gpu_aot_generate> "${folder}" ${feature}
        DEPENDS gpu_aot_generate HalideVulkan
        COMMENT "Pipelines with ${feature}"
        VERBATIM
    )
    set(${out} "${folder}" PARENT_SCOPE)
endfunction ()
