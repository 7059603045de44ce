// Items of 2 bytes, copied by themselves, as copy_words.glsl does: for devices that can.
//   COPY_ITEM(target, to, source, from)
#extension GL_EXT_shader_16bit_storage : require
#define STORED uint16_t
#define COPY_ITEM(target, to, source, from) target[to] = source[from];
