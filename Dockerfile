# The image runs what the Makefile runs, with the versions of constraints.txt.
#   docker build --tag sonosco .
#   docker build --tag sonosco --build-arg PIP_EXTRA_INDEX_URL=... .
# The argument names the package index of a torch build: the one for CPUs makes the image small, the one for your CUDA
# is for `docker run --gpus all`. Without it, torch is what the default index has for this platform.
# The tests, inside:
#   docker build --target test --tag sonosco-test . && docker run --rm sonosco-test
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS installed
ARG PIP_EXTRA_INDEX_URL=
# `synth` makes speech with espeak-ng, which is under the GPL (see NOTICE): leave it out of an image that is passed on
# without that library's source. Configs with manifests of their own do not need it.
ARG EXTRAS=synth,bpe,remote,serve
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
COPY setup.py constraints.txt README.md LICENSE NOTICE ./
COPY sonosco_like ./sonosco_like
RUN pip install --constraint constraints.txt ".[${EXTRAS}]"

FROM python:${PYTHON}-slim AS base
RUN useradd --create-home --uid 1000 sonosco && install --directory --owner sonosco /home/sonosco/app
USER sonosco
WORKDIR /home/sonosco/app
ENV OMP_NUM_THREADS=1

FROM base AS test
ARG PIP_EXTRA_INDEX_URL=
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/*
USER sonosco
COPY --chown=sonosco . .
RUN make install
CMD ["make", "test"]

# The last stage is what `docker build` makes: no compiler, no package cache, no tests.
FROM base AS run
COPY --from=installed /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
COPY --chown=sonosco configs ./configs
EXPOSE 5000 6007
ENTRYPOINT ["sonosco"]
CMD ["--help"]
