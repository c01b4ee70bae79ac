# The image runs what the Makefile runs, with the versions of constraints.txt.
# The default package index has one build of torch; for another one (CPU only, another CUDA) name the index that has it:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=... -t sonosco .
FROM python:3.11-slim

ARG PIP_EXTRA_INDEX_URL=

RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home sonosco

USER sonosco
WORKDIR /home/sonosco/app
ENV PIP_NO_CACHE_DIR=1

COPY --chown=sonosco setup.py constraints.txt README.md Makefile ./
COPY --chown=sonosco sonosco_like ./sonosco_like
RUN make install

COPY --chown=sonosco . .
ENV PATH=/home/sonosco/app/.venv/bin:$PATH
ENTRYPOINT ["sonosco"]
CMD ["--help"]
