# The Halide we build against: that of a project which uses ours, or else the unmodified libHalide of the Python wheel
# that tools/setup put into .venv. Any other Halide of the wheel's layout can be named with -DHV_HALIDE_ROOT=.
#
# Sets HV_HALIDE_INCLUDE, the folder of HalideRuntime.h, which is all that the library itself needs. For the tests also
# HV_HALIDE_ROOT (the folder that holds include/ and lib64/), HV_HALIDE_LIBRARY (libHalide.so),
# HV_HALIDE_LIBRARY_DIRECTORY, HV_PYTHON (the interpreter of .venv), HV_PYTHON19 (that of .venv19, or empty), and the
# target HalideWheel::Halide. The wheel ships a CMake package of its own, but it brings the generator helpers' whole
# machinery and asks for CMake 3.28; tests need the library and its headers only.
#
# The wheels are built with GCC's current string and list (_GLIBCXX_USE_CXX11_ABI=1), so no ABI flag is needed.

set(HV_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "Python that can import halide")
set(HV_PYTHON19 "${PROJECT_SOURCE_DIR}/.venv19/bin/python" CACHE FILEPATH "Python that can import the older halide")

# hv_find_halide(PYTHON OUT): the folder of the package halide, found without importing it.
function (hv_find_halide python out)
    set(${out} "" PARENT_SCOPE)
    if (NOT EXISTS "${python}")
        return()
    endif ()
    execute_process(
        COMMAND
            "${python}" -c
            "import importlib.util as u; print(u.find_spec('halide').submodule_search_locations[0], end='')"
        OUTPUT_VARIABLE found
        ERROR_QUIET
        RESULT_VARIABLE failed
    )
    if (NOT failed)
        set(${out} "${found}" PARENT_SCOPE)
    endif ()
endfunction ()

if (NOT HV_HALIDE_ROOT AND TARGET Halide::Runtime)
    get_target_property(HV_HALIDE_INCLUDE Halide::Runtime HEADER_DIRS)
else ()
    if (NOT HV_HALIDE_ROOT)
        hv_find_halide("${HV_PYTHON}" found)
        set(HV_HALIDE_ROOT "${found}" CACHE PATH "Folder that holds Halide's include and lib64" FORCE)
    endif ()
    set(HV_HALIDE_INCLUDE "${HV_HALIDE_ROOT}/include")
endif ()
if (NOT EXISTS "${HV_HALIDE_INCLUDE}/HalideRuntimeVulkan.h")
    message(
        FATAL_ERROR
        "No Halide found (HV_HALIDE_ROOT is '${HV_HALIDE_ROOT}'). Run `make setup` first; or, in a project that uses "
        "this one, call find_package(Halide) first or set HV_HALIDE_ROOT."
    )
endif ()

if (HV_BUILD_TESTS)
    if (NOT HV_HALIDE_ROOT)
        message(FATAL_ERROR "The tests need HV_HALIDE_ROOT, the folder that holds Halide's include and lib64")
    endif ()
    find_library(
        HV_HALIDE_LIBRARY Halide
        PATHS "${HV_HALIDE_ROOT}/lib64" "${HV_HALIDE_ROOT}/lib"
        NO_DEFAULT_PATH REQUIRED
    )
    cmake_path(GET HV_HALIDE_LIBRARY PARENT_PATH HV_HALIDE_LIBRARY_DIRECTORY)

    add_library(HalideWheel::Halide SHARED IMPORTED)
    set_target_properties(
        HalideWheel::Halide
        PROPERTIES
            IMPORTED_LOCATION "${HV_HALIDE_LIBRARY}"
            INTERFACE_INCLUDE_DIRECTORIES "${HV_HALIDE_ROOT}/include"
    )
    # What links HalideWheel::Halide is built with CMake's build rpath, so it finds the wheel's library where it lies.
endif ()
