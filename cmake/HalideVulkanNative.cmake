# Options shared by everything that is compiled for this machine: tests, tools, layers, applications.
#
# They sit in one interface target so that every test has the very same flags, which a shared precompiled header needs.

add_library(hv_native INTERFACE)
# Vulkan's structures are begun with their sType and filled in after, so a short initializer is no mistake here.
target_compile_options(hv_native INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
if (HV_SANITIZE)
    target_compile_options(hv_native INTERFACE -fsanitize=${HV_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(hv_native INTERFACE -fsanitize=${HV_SANITIZE})
endif ()

find_package(Threads REQUIRED)
target_link_libraries(hv_native INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
