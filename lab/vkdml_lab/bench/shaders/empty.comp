#version 450

layout(local_size_x = 1) in;
layout(std430, binding = 0) writeonly buffer Results { uint results[]; };

void main() {
    if (gl_GlobalInvocationID.x == ~0u) results[0] = 1;  // never true; a shader must use the buffer that is bound
}
