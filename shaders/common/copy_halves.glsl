// Copies items of 2 bytes as copy_words.glsl does, but without atomics: for devices with storageBuffer16BitAccess.
//   COPY_ITEM(target, to, source, from)
#extension GL_EXT_shader_16bit_storage : require
#define STORED uint16_t
#define COPY_ITEM(target, to, source, from) target[to] = source[from];
