# vkdml in a container. docs/install.md says how to run it, and what of this has been tried.
#   docker build --target cpu -t vkdml .         Mesa's driver for CPUs, and for AMD and Intel GPUs
#   docker build --target nvidia -t vkdml .      an NVIDIA GPU
FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
      ca-certificates g++ glslang-tools libfmt-dev libvulkan-dev make mesa-vulkan-drivers patch python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN make -C /src wheels

FROM debian:trixie-slim AS vkdml
RUN apt-get update && apt-get install -y --no-install-recommends libvulkan1 python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/dist /wheels
RUN python3 -m venv /opt/vkdml && /opt/vkdml/bin/pip install --no-cache-dir /wheels/vkdml-*.whl
ENV PATH=/opt/vkdml/bin:$PATH
ENTRYPOINT ["vkdml"]
CMD ["devices"]

# NVIDIA's container toolkit brings the driver's libraries, those of Vulkan where "graphics" is asked for. They load these here.
FROM vkdml AS nvidia
RUN apt-get update && apt-get install -y --no-install-recommends libegl1 libglvnd0 libx11-6 libxext6 \
    && rm -rf /var/lib/apt/lists/*
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics

FROM vkdml AS cpu
RUN apt-get update && apt-get install -y --no-install-recommends mesa-vulkan-drivers && rm -rf /var/lib/apt/lists/*
